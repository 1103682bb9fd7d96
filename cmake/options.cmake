# How our own code is compiled; every target of the project links clv_options.
add_library(clv_options INTERFACE)
target_compile_definitions(clv_options INTERFACE _GNU_SOURCE CLV_VERSION="${PROJECT_VERSION}")
target_compile_options(clv_options INTERFACE
    -Wall -Wextra -Wno-unused-parameter -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes
    # nothing reads errno or floating-point exceptions, and waiting for them keeps loops from vectorising
    -fno-math-errno -fno-trapping-math
    # a product and a sum are fused only where the source says fmaf, so that results do not depend on the compiler
    -ffp-contract=off)
if(CMAKE_C_COMPILER_ID STREQUAL GNU)
    # two guesses of gcc that change with the level of optimisation: snprintf cuts on purpose, and arrays filled in a
    # loop look unset (clang's check and the sanitizers look after real ones)
    target_compile_options(clv_options INTERFACE -Wno-format-truncation -Wno-maybe-uninitialized)
endif()
if(CLV_WERROR)
    target_compile_options(clv_options INTERFACE -Werror)
endif()
if(CLV_ARENA_DEBUG)
    target_compile_definitions(clv_options INTERFACE CLV_ARENA_DEBUG)
endif()
if(CLV_OPENMP)
    target_link_libraries(clv_options INTERFACE OpenMP::OpenMP_C)
else()
    target_compile_options(clv_options INTERFACE -Wno-unknown-pragmas)
endif()
if(CLV_FUZZ)
    target_compile_options(clv_options INTERFACE -fsanitize=fuzzer-no-link
        -Wno-pass-failed) # instrumented loops are not vectorized
endif()
if(CLV_SANITIZE)
    target_compile_options(clv_options INTERFACE
        -fsanitize=${CLV_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(clv_options INTERFACE -fsanitize=${CLV_SANITIZE})
    target_compile_definitions(clv_options INTERFACE CLV_SANITIZED)
endif()
