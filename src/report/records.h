/* report/records.h: TFRecord, the framing of TensorBoard's event files: each record has its length
 * and its bytes, both with a masked CRC-32C (tensorflow/core/lib/io/record_writer.h). */
#ifndef GD_REPORT_RECORDS_H
#define GD_REPORT_RECORDS_H

#include <gradus/base.h>

/* CRC-32C (Castagnoli) as RFC 3720, B.4 has it. */
uint32_t gd_crc32c(const void *bytes, size_t size);

enum { GD_RECORD_HEAD = 12, GD_RECORD_TAIL = 4 };

/* Fill what stands before and behind a record's bytes. */
void gd_record_frame(const void *bytes, size_t size, unsigned char head[GD_RECORD_HEAD],
                     unsigned char tail[GD_RECORD_TAIL]);
/* The record at `at` of a file's bytes: 1, with its bytes; 0: the file ends before the record does;
 * -1: a checksum is wrong. */
int gd_record_read(const unsigned char *file, size_t size, size_t at, const unsigned char **bytes,
                   size_t *length);

#endif
