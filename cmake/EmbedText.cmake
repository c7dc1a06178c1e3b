# cmake -DFILES=a,b -DNAME=symbol -DOUT=file.c -P EmbedText.cmake
#
# Writes FILES, one after another, as the array NAME of NAME_size bytes. From C headers goes what does not belong into
# generated C: the comment at the head of the file, its include guard, its #includes, and all comments. Texts for
# devices lose their comments, too: only compilers read them.
string(REPLACE "," ";" files "${FILES}")
set(comment "/\\*([^*]|\\*[^/])*\\*/")
set(all "@N\n")
foreach(file IN LISTS files)
    file(READ "${file}" text)
    if(file MATCHES "\\.h$")
        string(FIND "${text}" "*/" end)
        math(EXPR begin "${end} + 2")
        string(SUBSTRING "${text}" ${begin} -1 text)
        string(REGEX REPLACE "#ifndef GD_[A-Z0-9_]*_H\n#define GD_[A-Z0-9_]*_H\n" "" text "${text}")
        string(FIND "${text}" "/* ---- behind here nothing is for exported C" end)
        if(end EQUAL -1)
            string(FIND "${text}" "#endif" end REVERSE)
        endif()
        string(SUBSTRING "${text}" 0 ${end} text)
        string(REGEX REPLACE "#include [^\n]*\n" "" text "${text}")
    endif()
    if(file MATCHES "\\.h$|/device/|/devices\\.txt$")
        string(REGEX REPLACE "\n( *${comment}\n)+" "\n" text "${text}")
        string(REGEX REPLACE " *${comment}" "" text "${text}")
    endif()
    string(REPLACE "…" "..." text "${text}")
    string(APPEND all "${text}\n")
endforeach()
file(WRITE "${OUT}.txt" "${all}")
file(READ "${OUT}.txt" hex HEX)
string(LENGTH "${hex}" size)
math(EXPR size "${size} / 2")
string(REGEX REPLACE "(........................................)" "\\1\n    " hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE "${OUT}" "/* Made by cmake/EmbedText.cmake. */
#include <stddef.h>
extern const unsigned char ${NAME}[];
extern const size_t ${NAME}_size;
const size_t ${NAME}_size = ${size};
const unsigned char ${NAME}[] = {
    ${bytes} };
")
