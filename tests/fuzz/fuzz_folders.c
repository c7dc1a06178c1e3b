/* tests/fuzz/fuzz_folders.c: libFuzzer on data sets of folders: CIFAR-10's files and folders of
 * photographs.
 *
 * The first byte says which. For CIFAR-10 the second and third say how many copies of what follows
 * make a record and how many bytes are cut off; for photographs each entry is a byte for what it
 * is, a byte for its name, a byte for its size, and its bytes. */
#include "fuzz.h"

#include <ftw.h>
#include <sys/stat.h>

static char folder[64];

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *ftw)
{
    (void)info, (void)type, (void)ftw;
    return remove(path);
}

static void remove_folder(void)
{
    (void)nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void make_folder(void)
{
    if (folder[0])
        remove_folder();
    else
        atexit(remove_folder);
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(folder, sizeof folder, "%s/gradus_fuzz_XXXXXX", base);
    if (!mkdtemp(folder))
        abort();
}

static void write_file(const char *name, const uint8_t *data, size_t size)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f)
        return; /* a folder of that name is there */
    if (fwrite(data, 1, size, f) != size)
        abort();
    fclose(f);
}

static void use(gd_context *gd, gd_dataset *d)
{
    gd_error_clear(); /* fuzz_check has looked at it */
    gd_loader *l = gd_loader_create(d, .batch = 2, .shuffle = true);
    gd_batch b;
    int64_t count = 0, failed = 0;
    for (int64_t i = 0; l && i < gd_loader_batches(l); i++) {
        if (gd_loader_next(l, &b))
            count += b.size;
        else if (gd_error_code() == GD_OK)
            abort();
        else
            failed++; /* a file that is no image */
        gd_error_clear();
    }
    if ((failed == 0 && count != gd_dataset_count(d)) || gd_dataset_field(d, 1)->classes < 1)
        abort();
    (void)gd;
}

static gd_dataset *read_cifar(gd_context *gd, const uint8_t *data, size_t size)
{
    enum { RECORD = 3073 };
    static uint8_t file[8 * RECORD];
    if (size < 3)
        return gd_cifar10(gd, folder);
    size_t records = data[0] % 8 + 1u, bytes = records * RECORD - data[1] % 4;
    bool whole = data[0] & 0x80; /* as it is; perhaps with gzip */
    for (size_t i = 0; i < bytes; i++)
        file[i] =
            i % RECORD == 0 ? data[2 + i / RECORD % (size - 2)] % 11 : data[2 + i % (size - 2)];
    write_file(data[1] & 0x80 ? "test_batch.bin" : "data_batch_2.bin", whole ? data + 2 : file,
               whole ? size - 2 : bytes);
    return gd_cifar10(gd, folder, .test = data[1] & 0x80);
}

static gd_dataset *read_photographs(gd_context *gd, const uint8_t *data, size_t size)
{
    static const char *const places[] = { "a/", "b/", "", ".c/" };
    static const char *const ends[] = { ".jpg", ".JPEG", ".png", "" };
    char name[64], path[160];
    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, places[i]);
        if (places[i][0] && (size < 1 || data[0] >> i & 1))
            (void)mkdir(path, 0700);
    }
    for (size_t at = 1; at + 3 <= size;) {
        uint8_t what = data[at], letter = data[at + 1];
        size_t bytes = data[at + 2] * 4u;
        at += 3;
        bytes = bytes < size - at ? bytes : size - at;
        snprintf(name, sizeof name, "%s%c%s", places[what % 4], 'a' + letter % 26,
                 ends[what / 4 % 4]);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        if (what / 16 % 4 == 1)
            (void)mkdir(path, 0700);
        else if (what / 16 % 4 == 2)
            (void)!symlink(name, path);
        else
            write_file(name, data + at, bytes);
        at += bytes;
    }
    return gd_image_folder(gd, folder, 4, 3);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    make_folder();
    gd_context *gd = fuzz_context();
    gd_dataset *d =
        data[0] % 2 ? read_cifar(gd, data + 1, size - 1) : read_photographs(gd, data + 1, size - 1);
    fuzz_check(d != NULL);
    if (d)
        use(gd, d);
    gd_close(gd);
    return 0;
}
