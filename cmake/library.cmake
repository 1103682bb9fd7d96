# libcleave.a and libcleave.so, from the same objects. A new file in a source folder is picked up by itself.

# The kernels under src/kernels/cpu/isa are compiled once an instruction set, with CLV_ISA naming it; which copy runs
# is decided at run time. They take longest to compile, and come first, for Ninja begins with them. Where sources fuse
# a product and a sum (clv_v_fma, vf_fma), the copies that have the instruction use it: their reference is the portable
# one, within the tolerance of the dtype.
set(isa_names portable)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    list(APPEND isa_names avx2 avx512)
endif()
# No flag changes a value: no code reads errno or the exception flags, and without them branch-free loops
# vectorise. Functions begin on a line, so that what is linked before them does not move their loops: the same code, 32
# or 48 bytes on, read weights of bf16 7 % slower on Zen 5.
set(isa_flags_all -fno-math-errno -fno-trapping-math -falign-functions=64)
set(isa_flags_portable "")
set(isa_flags_avx2 -mavx2 -mfma -mf16c)
set(isa_flags_avx512 -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
file(GLOB isa_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernels/cpu/isa/*.c)
if(CLV_SANITIZE)
    # At -O1 gcc keeps its sums in memory, which was a fifth of the time of programs' tests.
    set_source_files_properties(${PROJECT_SOURCE_DIR}/src/kernels/cpu/isa/gemm_f32_simd.c
        PROPERTIES COMPILE_OPTIONS -O2)
endif()
if(isa_sources)
    foreach(isa IN LISTS isa_names)
        add_library(clv_isa_${isa} OBJECT ${isa_sources})
        target_include_directories(clv_isa_${isa} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
        target_link_libraries(clv_isa_${isa} PRIVATE clv_options)
        target_compile_definitions(clv_isa_${isa} PRIVATE CLV_ISA=${isa})
        target_compile_options(clv_isa_${isa} PRIVATE ${isa_flags_all} ${isa_flags_${isa}})
        list(APPEND clv_object_targets clv_isa_${isa})
    endforeach()
endif()

# Kernels that only some CPUs of x86-64 can run, whatever the others have: called where CPUID names what they need.
if("avx512" IN_LIST isa_names)
    file(GLOB x86_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernels/cpu/x86/*.c)
    add_library(clv_x86 OBJECT ${x86_sources})
    target_include_directories(clv_x86 PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(clv_x86 PRIVATE clv_options)
    target_compile_options(clv_x86 PRIVATE ${isa_flags_all} ${isa_flags_avx512}
        -mavx512bf16 -mamx-tile -mamx-bf16)
    list(APPEND clv_object_targets clv_x86)
endif()

# The rest.
file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.c)
list(FILTER sources EXCLUDE REGEX "/src/(cli|kernels/cpu/isa|kernels/cpu/x86)/|/mpi_module.c$")
add_library(clv_objects OBJECT ${sources})
target_include_directories(clv_objects PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src
    ${PROJECT_BINARY_DIR}/generated)

# The profiles of data/profiles are part of the library, as lines: they are found wherever it is put.
file(GLOB profiles CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/data/profiles/*.json)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${profiles})
set(rows "")
foreach(profile IN LISTS profiles)
    get_filename_component(name ${profile} NAME_WE)
    file(READ ${profile} text)
    string(REPLACE "\\" "\\\\" text "${text}")
    string(REPLACE "\"" "\\\"" text "${text}")
    string(REPLACE "\n" "\\n\",\\\n  \"" text "${text}")
    string(APPEND rows " \\\n  {\"${name}\", (const char *const[]){\\\n  \"${text}\", 0}},")
endforeach()
file(CONFIGURE OUTPUT generated/program/shipped_machines.h
    CONTENT "/* made by cmake/library.cmake of data/profiles */\n#define CLV_SHIPPED_MACHINES${rows}\n" @ONLY)
target_link_libraries(clv_objects PRIVATE
    clv_options clv::dnnl clv::hwloc clv::jansson clv::pcre2-8 clv::utf8proc clv::xxhash clv::z
    Threads::Threads)
list(PREPEND clv_object_targets clv_objects)

foreach(target IN LISTS clv_object_targets)
    list(APPEND clv_all_objects $<TARGET_OBJECTS:${target}>)
endforeach()

add_library(cleave_static STATIC ${clv_all_objects})
add_library(cleave_shared SHARED ${clv_all_objects})
# By the names that find_package(cleave) gives, for projects that have this one inside.
add_library(cleave::cleave ALIAS cleave_shared)
add_library(cleave::cleave_shared ALIAS cleave_shared)
add_library(cleave::cleave_static ALIAS cleave_static)
set_target_properties(cleave_shared PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
    LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/cleave.map)
target_link_options(cleave_shared PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/cleave.map)
foreach(target cleave_static cleave_shared)
    set_target_properties(${target} PROPERTIES OUTPUT_NAME cleave LINKER_LANGUAGE C EXPORT_NAME ${target})
    target_include_directories(${target} PUBLIC
        $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_link_libraries(${target} PRIVATE
        $<BUILD_INTERFACE:clv::dnnl> $<BUILD_INTERFACE:clv::hwloc> $<BUILD_INTERFACE:clv::jansson>
        $<BUILD_INTERFACE:clv::pcre2-8> $<BUILD_INTERFACE:clv::utf8proc> $<BUILD_INTERFACE:clv::xxhash>
        $<BUILD_INTERFACE:clv::z>
        $<BUILD_INTERFACE:clv_options> $<BUILD_INTERFACE:m> Threads::Threads)
endforeach()
# Whoever links the installed static library needs what it calls.
target_link_libraries(cleave_static INTERFACE
    $<INSTALL_INTERFACE:dnnl> $<INSTALL_INTERFACE:hwloc> $<INSTALL_INTERFACE:jansson>
    $<INSTALL_INTERFACE:pcre2-8> $<INSTALL_INTERFACE:utf8proc> $<INSTALL_INTERFACE:xxhash> $<INSTALL_INTERFACE:z>
    $<INSTALL_INTERFACE:m>)
foreach(name IN LISTS OpenMP_C_LIB_NAMES) # by name: a user may have no C compiler, nor the same one
    target_link_libraries(cleave_static INTERFACE $<INSTALL_INTERFACE:${name}>)
endforeach()
