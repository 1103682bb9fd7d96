# make install PREFIX=...: headers, both libraries, the program, cleave.pc and a CMake package; and a list of these, by
# which scripts/uninstall.sh removes them.
include(CMakePackageConfigHelpers)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/cleave DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/data/profiles DESTINATION ${CMAKE_INSTALL_DATADIR}/cleave)
install(TARGETS cleave_static cleave_shared EXPORT cleave_targets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET cleave_cli)
    install(TARGETS cleave_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    install(PROGRAMS ${PROJECT_SOURCE_DIR}/scripts/cleave-run DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
foreach(mpi IN LISTS CLV_MPIS)
    install(TARGETS cleave_mpi_${mpi} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/cleave)
endforeach()
if(TARGET man_pages)
    install(DIRECTORY ${PROJECT_BINARY_DIR}/share/man/ DESTINATION ${CMAKE_INSTALL_MANDIR})
    foreach(folder bash-completion zsh fish)
        install(DIRECTORY ${PROJECT_BINARY_DIR}/share/${folder} DESTINATION ${CMAKE_INSTALL_DATADIR})
    endforeach()
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/cleave)
install(EXPORT cleave_targets NAMESPACE cleave:: DESTINATION ${package_dir} FILE cleaveTargets.cmake)
configure_package_config_file(cmake/cleaveConfig.cmake.in cleaveConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(cleaveConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cleaveConfig.cmake ${PROJECT_BINARY_DIR}/cleaveConfigVersion.cmake
    DESTINATION ${package_dir})

if(CLV_OPENMP)
    set(pc_openmp ${OpenMP_C_FLAGS})
endif()
file(RELATIVE_PATH pc_up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/cleave.pc.in cleave.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/cleave.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# What make install builds.
add_custom_target(cleave_installed DEPENDS cleave_static cleave_shared)
foreach(target cleave_cli man_pages)
    if(TARGET ${target})
        add_dependencies(cleave_installed ${target})
    endif()
endforeach()
foreach(mpi IN LISTS CLV_MPIS)
    add_dependencies(cleave_installed cleave_mpi_${mpi})
endforeach()

# Names are relative to the prefix: the tree may be moved.
install(CODE [[
    set(list "share/cleave/installed\n")
    get_filename_component(prefix "${CMAKE_INSTALL_PREFIX}/" ABSOLUTE)
    foreach(file IN LISTS CMAKE_INSTALL_MANIFEST_FILES)
        file(RELATIVE_PATH name "${prefix}" "${file}")
        string(APPEND list "${name}\n")
    endforeach()
    file(WRITE "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/share/cleave/installed" "${list}")
]])
