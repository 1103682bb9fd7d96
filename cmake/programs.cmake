# build/cleave, and one program a file of examples/.
file(GLOB_RECURSE cli_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cli/*.c)
list(FILTER cli_sources EXCLUDE REGEX "/main.c$|/cli/manual/")
if(cli_sources)
    # Commands apart from main, for the tests that call them.
    add_library(clv_cli STATIC ${cli_sources})
    target_include_directories(clv_cli PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    # The command is a user of libcleave.so; tests of private things link clv_cli and the static library.
    target_link_libraries(clv_cli PUBLIC clv_options clv::jansson Threads::Threads m)
    add_executable(cleave_cli ${PROJECT_SOURCE_DIR}/src/cli/main.c)
    # It finds the library beside itself, as built, or from bin/ in lib/, as installed, wherever that is moved.
    file(RELATIVE_PATH lib_from_bin /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
    set_target_properties(cleave_cli PROPERTIES OUTPUT_NAME cleave RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
        BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN;$ORIGIN/${lib_from_bin}")
    target_link_libraries(cleave_cli PRIVATE clv_cli cleave_shared)

    # Manual pages and completions, from the tables of the commands' options. What has been compiled for another machine
    # cannot run here; sanitizers would look at it in vain.
    if(NOT CMAKE_CROSSCOMPILING AND NOT CLV_SANITIZE AND NOT CLV_FUZZ)
        file(GLOB manual_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cli/manual/*.c)
        add_executable(make_manual ${manual_sources})
        set_target_properties(make_manual PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
        target_link_libraries(make_manual PRIVATE clv_cli cleave_shared)
        target_link_options(make_manual PRIVATE -Wl,--wrap=clv_options_parse)
        add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/share/made DEPENDS make_manual
            COMMAND ${CMAKE_COMMAND} -E rm -rf ${PROJECT_BINARY_DIR}/share
            COMMAND make_manual ${PROJECT_BINARY_DIR}/share
            COMMAND ${CMAKE_COMMAND} -E touch ${PROJECT_BINARY_DIR}/share/made)
        add_custom_target(man_pages ALL DEPENDS ${PROJECT_BINARY_DIR}/share/made)
    endif()
endif()

if(NOT PROJECT_IS_TOP_LEVEL)
    return()
endif()

# Examples are a user's programs: they see the public headers alone.
file(GLOB example_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.c)
foreach(source IN LISTS example_sources)
    get_filename_component(name ${source} NAME_WE)
    add_executable(example_${name} ${source})
    set_target_properties(example_${name} PROPERTIES
        OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
    target_link_libraries(example_${name} PRIVATE cleave_static clv_options
        clv::jansson clv::pcre2-8 clv::utf8proc clv::xxhash clv::z m)
endforeach()

# One of them in C++, where there is a compiler for it; sanitizers would have to be its own, too.
include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER AND NOT CLV_SANITIZE AND NOT CLV_FUZZ)
    enable_language(CXX)
    add_executable(example_cpp17 ${PROJECT_SOURCE_DIR}/examples/cpp17.cpp)
    target_compile_features(example_cpp17 PRIVATE cxx_std_17)
    set_target_properties(example_cpp17 PROPERTIES
        OUTPUT_NAME cpp17 CXX_EXTENSIONS OFF RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
    target_link_libraries(example_cpp17 PRIVATE cleave_shared)
endif()
