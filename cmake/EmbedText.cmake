# cmake -DFILES=a,b -DNAME=symbol -DOUT=file.c -P EmbedText.cmake
#
# Writes the text of FILES, one after another, as the array `const char NAME[]`, ending in a zero. From C headers goes what does not
# belong into generated C: the comment at the head of the file, its include guard, its #includes and section comments. Frequent words
# become single control characters, which takes off two fifths: NAME_words[c] is what character c stands for.
set(words
    "\n    " " = GD_FMA_F64(" "double " " = " "0x1." "GD_SELECT_F" "float " " */\nGD_INLINE " "GD_FMA_F32(" "return " "    " "_f64("
    "int64_t " "gd_" " + " "p, t, " " - " " * " "_f32(" "\nstatic inline " "tail" "max " ")\n{" "p-1")
string(REPLACE "," ";" files "${FILES}")
set(all "")
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
        string(REGEX REPLACE "/\\* ----[^\n]*\n" "" text "${text}")
    endif()
    string(REPLACE "…" "..." text "${text}")
    string(APPEND all "${text}\n")
endforeach()
set(table "")
set(code 0)
foreach(word IN LISTS words)
    math(EXPR code "${code} + 1")
    if(code EQUAL 9)
        set(code 14) # not tab, newline and the like
    endif()
    string(ASCII ${code} character)
    string(REPLACE "${word}" "${character}" all "${all}")
    string(REPLACE "\n" "\\n" quoted "${word}")
    string(APPEND table "    [${code}] = \"${quoted}\",\n")
endforeach()
string(HEX "${all}" hex)
string(REGEX REPLACE "(............................................)" "\\1\n    " hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1, " bytes "${hex}")
file(WRITE "${OUT}" "/* Made by cmake/EmbedText.cmake. */
extern const char ${NAME}[];
extern const char *const ${NAME}_words[32];
const char ${NAME}[] = {
    ${bytes}0 };
const char *const ${NAME}_words[32] = {
${table}};
")
