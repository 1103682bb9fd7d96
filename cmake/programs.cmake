# build/cleave, and one program a file of examples/.
file(GLOB cli_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cli/*.c)
if(cli_sources)
    add_executable(cleave_cli ${cli_sources})
    set_target_properties(cleave_cli PROPERTIES OUTPUT_NAME cleave RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
    target_include_directories(cleave_cli PRIVATE ${PROJECT_SOURCE_DIR}/src)
    # Hardware profiles are found by name where they were installed, and in the source tree.
    target_compile_definitions(cleave_cli PRIVATE
        CLV_DATA_INSTALLED="${CMAKE_INSTALL_FULL_DATADIR}/cleave" CLV_DATA_SOURCE="${PROJECT_SOURCE_DIR}/data")
    target_link_libraries(cleave_cli PRIVATE cleave_static clv_options clv::dnnl clv::hwloc clv::jansson clv::utf8proc clv::xxhash
        Threads::Threads m)
endif()

# Examples are a user's programs: they see the public headers alone.
file(GLOB example_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.c)
foreach(source IN LISTS example_sources)
    get_filename_component(name ${source} NAME_WE)
    add_executable(example_${name} ${source})
    set_target_properties(example_${name} PROPERTIES
        OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
    target_link_libraries(example_${name} PRIVATE cleave_static clv_options clv::jansson clv::utf8proc clv::xxhash m)
endforeach()
