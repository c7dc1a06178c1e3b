# cmake -DHEADERS=a,b -DOUT=file.c -P ApiHash.cmake
#
# Writes gd_api_hash(), gradus/abi.h. tools/read_headers.py computes the same number.
string(REPLACE "," ";" headers "${HEADERS}")
set(digests "")
foreach(header IN LISTS headers)
    file(SHA256 "${header}" digest)
    string(APPEND digests "${digest}")
endforeach()
string(SHA256 hash "${digests}")
file(WRITE "${OUT}" "#include <gradus/abi.h>\n\nconst char *gd_api_hash(void)\n{\n    return \"${hash}\";\n}\n")
