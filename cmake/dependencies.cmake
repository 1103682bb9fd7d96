# What cleave stands on. `make setup` installs all of it on Debian.
find_package(Threads REQUIRED)
if(CLV_OPENMP)
    find_package(OpenMP REQUIRED COMPONENTS C)
endif()

# header and library NAME, as an imported target clv::NAME
function(clv_find name header package)
    string(TOUPPER ${name} upper)
    find_path(${upper}_INCLUDE_DIR ${header})
    find_library(${upper}_LIBRARY ${name})
    if(NOT ${upper}_INCLUDE_DIR OR NOT ${upper}_LIBRARY)
        message(FATAL_ERROR "${header} or lib${name} not found: run `make setup` (Debian package ${package})")
    endif()
    add_library(clv::${name} UNKNOWN IMPORTED)
    set_target_properties(clv::${name} PROPERTIES
        IMPORTED_LOCATION ${${upper}_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES ${${upper}_INCLUDE_DIR})
endfunction()

clv_find(dnnl dnnl.h libdnnl-dev)
clv_find(hwloc hwloc.h libhwloc-dev)
clv_find(jansson jansson.h libjansson-dev)
clv_find(utf8proc utf8proc.h libutf8proc-dev)
clv_find(xxhash xxhash.h libxxhash-dev)
if(CLV_TESTS)
    clv_find(cmocka cmocka.h libcmocka-dev)
endif()
