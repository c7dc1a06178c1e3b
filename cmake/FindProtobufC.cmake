# protobuf-c, protocol buffers in C: sets ProtobufC_FOUND, the target ProtobufC::ProtobufC and, where there is the compiler,
# ProtobufC_COMPILER. (It ships no CMake package that every distribution has.)
find_path(ProtobufC_INCLUDE_DIR protobuf-c/protobuf-c.h)
find_library(ProtobufC_LIBRARY protobuf-c)
find_program(ProtobufC_COMPILER protoc-c)
mark_as_advanced(ProtobufC_INCLUDE_DIR ProtobufC_LIBRARY ProtobufC_COMPILER)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ProtobufC REQUIRED_VARS ProtobufC_LIBRARY ProtobufC_INCLUDE_DIR)

if(ProtobufC_FOUND AND NOT TARGET ProtobufC::ProtobufC)
    add_library(ProtobufC::ProtobufC UNKNOWN IMPORTED)
    set_target_properties(ProtobufC::ProtobufC PROPERTIES
        IMPORTED_LOCATION "${ProtobufC_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${ProtobufC_INCLUDE_DIR}")
endif()
