# Finds what Gradus can use but does not need. Sets
#   GD_DEPENDENCIES       targets to link
#   GD_DEPENDENCY_DEFINES GD_HAVE_… for each that was found
#   GD_PACKAGE_REQUIRES   the find_dependency() calls an installed static library needs
#   GD_PC_REQUIRES, GD_PC_LIBS   the same for pkg-config
set(GD_DEPENDENCIES m ${CMAKE_DL_LIBS})
set(GD_DEPENDENCY_DEFINES)
set(GD_PACKAGE_REQUIRES)
set(GD_PC_REQUIRES)
set(GD_PC_LIBS -lm)
foreach(library IN LISTS CMAKE_DL_LIBS) # drivers of devices are loaded when they are asked for
    list(APPEND GD_PC_LIBS -l${library})
endforeach()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads)
if(Threads_FOUND)
    list(APPEND GD_DEPENDENCIES Threads::Threads)
    list(APPEND GD_PACKAGE_REQUIRES "find_dependency(Threads)")
    list(APPEND GD_PC_LIBS -pthread)
endif()

find_package(ZLIB)
if(ZLIB_FOUND)
    list(APPEND GD_DEPENDENCIES ZLIB::ZLIB)
    list(APPEND GD_DEPENDENCY_DEFINES GD_HAVE_ZLIB=1)
    list(APPEND GD_PACKAGE_REQUIRES "find_dependency(ZLIB)")
    list(APPEND GD_PC_REQUIRES zlib)
endif()

find_package(JPEG)
if(JPEG_FOUND)
    list(APPEND GD_DEPENDENCIES JPEG::JPEG)
    list(APPEND GD_DEPENDENCY_DEFINES GD_HAVE_JPEG=1)
    list(APPEND GD_PACKAGE_REQUIRES "find_dependency(JPEG)")
    list(APPEND GD_PC_REQUIRES libjpeg)
endif()

find_package(PNG)
if(PNG_FOUND)
    list(APPEND GD_DEPENDENCIES PNG::PNG)
    list(APPEND GD_DEPENDENCY_DEFINES GD_HAVE_PNG=1)
    list(APPEND GD_PACKAGE_REQUIRES "find_dependency(PNG)")
    list(APPEND GD_PC_REQUIRES libpng)
endif()

find_package(Jansson)
if(Jansson_FOUND)
    list(APPEND GD_DEPENDENCIES Jansson::Jansson)
    list(APPEND GD_DEPENDENCY_DEFINES GD_HAVE_JANSSON=1)
    list(APPEND GD_PACKAGE_REQUIRES "find_dependency(Jansson)")
    list(APPEND GD_PC_REQUIRES jansson)
endif()

# TensorBoard's event files: the library, and at build time the compiler of src/report/tensorboard.proto.
find_package(ProtobufC)
if(ProtobufC_FOUND AND ProtobufC_COMPILER)
    list(APPEND GD_DEPENDENCIES ProtobufC::ProtobufC)
    list(APPEND GD_DEPENDENCY_DEFINES GD_HAVE_PROTOBUF_C=1)
    list(APPEND GD_PACKAGE_REQUIRES "find_dependency(ProtobufC)")
    list(APPEND GD_PC_REQUIRES libprotobuf-c)
else()
    set(ProtobufC_FOUND FALSE)
endif()
