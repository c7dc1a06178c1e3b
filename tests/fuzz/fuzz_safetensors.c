/* tests/fuzz/fuzz_safetensors.c: libFuzzer on the safetensors reader.
 *
 * No corpus is needed: the mutator turns an empty input into a small valid file, and mostly keeps
 * the header's length and the file's size in step with a mutated header, so that mutations reach
 * the checks behind those two.
 *
 *   clang -fsanitize=fuzzer,address,undefined …; fuzz_safetensors -max_total_time=60
 */
#include "io/safetensors.h"

#include "fuzz.h"

static void check_entry(const gd_safetensors *file, size_t index, size_t size)
{
    const gd_safetensors_entry *entry = gd_safetensors_at(file, index);
    if (entry->bytes > size || gd_safetensors_find(file, entry->name) != entry || entry->rank < 0)
        abort();
    unsigned char *values = malloc(entry->bytes + 1);
    if (values && gd_safetensors_read(file, entry, values) != GD_OK)
        abort();
    free(values);
    const gd_safetensors_entry *got;
    gd_status status = gd_safetensors_get(file, entry->name, &got);
    if (status != GD_OK && status != GD_ERR_UNSUPPORTED)
        abort();
    gd_error_clear();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gd_safetensors *file;
    gd_error_clear();
    gd_status status = gd_safetensors_open_memory(data, size, "fuzz", &file);
    if (status != gd_error_code() || (status == GD_OK) != (file != NULL))
        abort();
    if (!file)
        return 0;
    size_t bytes = 0;
    for (size_t i = 0; i < gd_safetensors_count(file); i++) {
        check_entry(file, i, size);
        bytes += gd_safetensors_at(file, i)->bytes;
    }
    uint64_t header;
    memcpy(&header, data, sizeof header);
    if (8 + header + bytes != size)
        abort();
    for (size_t i = 0; i < gd_safetensors_metadata_count(file); i++)
        if (!gd_safetensors_metadata(file, gd_safetensors_metadata_at(file, i).key))
            abort();
    gd_safetensors_close(file);
    return 0;
}

static size_t give_seed(uint8_t *data, size_t room)
{
    static const char header[] =
        "{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":"
        "[0,8]},\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[8,9]}}";
    uint8_t file[8 + sizeof header - 1 + 9] = { sizeof header - 1 };
    memcpy(file + 8, header, sizeof header - 1);
    if (room < sizeof file)
        return 0;
    memcpy(data, file, sizeof file);
    return sizeof file;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    return size <= 8 ? give_seed(data, room) : fuzz_mutate_safetensors(data, size, room, seed);
}
