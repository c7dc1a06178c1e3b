# gradus._fast, the hot path of the Python package in C (python/fast/fast.h): one module for Python 3.11 and all later ones, by the stable ABI.
# Left out where Python's headers are not there; the package then works over ctypes alone. It is linked with neither Python nor the library.
find_package(Python3 QUIET COMPONENTS Interpreter Development.Module)
if(NOT Python3_Development.Module_FOUND OR Python3_VERSION VERSION_LESS 3.11)
    message(STATUS "gradus._fast is left out: it needs the headers of Python 3.11 or later (found: ${Python3_VERSION})")
    return()
endif()
file(GLOB GD_FAST_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/fast/*.c)
add_library(gradus_python_fast MODULE ${GD_FAST_SOURCES} ${GD_PYTHON_MODULES}/fast_ops.c)
set_target_properties(gradus_python_fast PROPERTIES OUTPUT_NAME _fast PREFIX "" SUFFIX ".abi3.so" C_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY ${GD_PYTHON_MODULES})
target_include_directories(gradus_python_fast PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/python/fast ${GD_PYTHON_MODULES})
target_include_directories(gradus_python_fast SYSTEM PRIVATE ${Python3_INCLUDE_DIRS})
target_compile_definitions(gradus_python_fast PRIVATE _GNU_SOURCE)
# Python's tables have functions as void *: not -Wpedantic.
target_compile_options(gradus_python_fast PRIVATE -O2 -Wall -Wextra -Wconversion -Wshadow $<$<BOOL:${GD_WERROR}>:-Werror>)
target_link_libraries(gradus_python_fast PRIVATE ${CMAKE_DL_LIBS})
if(APPLE)
    target_link_options(gradus_python_fast PRIVATE -undefined dynamic_lookup)
else()
    target_link_options(gradus_python_fast PRIVATE LINKER:--no-as-needed) # auditwheel looks for the libc it was linked with
endif()
add_dependencies(gradus_python gradus_python_fast)
install(TARGETS gradus_python_fast LIBRARY DESTINATION gradus COMPONENT python)
