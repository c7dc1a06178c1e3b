# cmake -DFILES=a,b -DOUT=file.txt -P EmbedText.cmake
#
# Writes FILES, one after another, to OUT. From C headers goes what does not belong into generated C: the comment at the
# head of the file, its include guard, its #includes and section comments.
string(REPLACE "," ";" files "${FILES}")
set(all "@N\n")
foreach(file IN LISTS files)
    file(READ "${file}" text)
    if(file MATCHES "\\.h$")
        string(FIND "${text}" "*/" end)
        math(EXPR begin "${end} + 2")
        string(SUBSTRING "${text}" ${begin} -1 text)
        string(REGEX REPLACE "#ifndef GD_[A-Z0-9_]*_H\n#define GD_[A-Z0-9_]*_H\n" "" text "${text}")
        string(FIND "${text}" "#endif" end REVERSE)
        string(SUBSTRING "${text}" 0 ${end} text)
        string(REGEX REPLACE "#include [^\n]*\n" "" text "${text}")
        string(REGEX REPLACE "/\\* ----([^*]|\\*[^/])*\\*/\n" "" text "${text}")
    endif()
    string(REPLACE "…" "..." text "${text}")
    string(APPEND all "${text}\n")
endforeach()
file(WRITE "${OUT}" "${all}")
