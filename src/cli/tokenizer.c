/* cli/tokenizer.c: the tokeniser of a model: that in its file, or one that --tokenizer names. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool cli_is_gguf(const char *path)
{
    char first[4] = { 0 };
    FILE *file = fopen(path, "rb");
    size_t got = file ? fread(first, 1, sizeof first, file) : 0;
    if (file)
        fclose(file);
    return got == sizeof first && memcmp(first, "GGUF", sizeof first) == 0;
}

/* llama2.c's files are full of zeros; a list of merges is text. */
gd_tokenizer *cli_open_tokenizer(const char *name)
{
    static const char characters[] = "characters:";
    if (strcmp(name, "bytes") == 0)
        return gd_tokenizer_bytes();
    bool of_text = strncmp(name, characters, strlen(characters)) == 0;
    size_t size;
    if (!of_text && cli_is_gguf(name)) {
        gd_tokenizer *own = gd_tokenizer_load_gguf(name);
        if (!own)
            (void)cli_fail();
        return own;
    }
    char *bytes = cli_read_file(of_text ? name + strlen(characters) : name, &size);
    if (!bytes) {
        (void)cli_fail();
        return NULL;
    }
    gd_tokenizer *t = of_text                  ? gd_tokenizer_characters(bytes, size)
                      : memchr(bytes, 0, size) ? gd_tokenizer_load_llama2c(name)
                                               : gd_tokenizer_load_bpe(name);
    if (!t)
        (void)cli_fail();
    free(bytes);
    return t;
}

bool cli_own_tokenizer(const char *path, gd_tokenizer **own)
{
    if (cli_is_gguf(path)) {
        *own = gd_tokenizer_load_gguf(path);
        return *own != NULL;
    }
    gd_tensor_file *file = gd_tensor_file_open(path);
    const char *characters = gd_tensor_file_metadata(file, CLI_CHARACTERS);
    const char *name = gd_tensor_file_metadata(file, CLI_TOKENIZER);
    *own = NULL;
    if (characters)
        *own = gd_tokenizer_characters(characters, strlen(characters));
    else if (name && strcmp(name, "bytes") == 0)
        *own = gd_tokenizer_bytes();
    bool failed = (characters || name) && !*own;
    gd_tensor_file_close(file);
    if (!failed)
        gd_error_clear(); /* llama2.c's files are none of these */
    return !failed;
}
