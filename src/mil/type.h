/* mil/type.h: element types and value types of a program: numbers and names in files, comparing, counting, printing. */
#ifndef TEG_MIL_TYPE_H
#define TEG_MIL_TYPE_H

#include "base/cursor.h"
#include "mil/program.h"

bool teg_mil_same_type(const struct teg_mil_type *a, const struct teg_mil_type *b);
/* Elements, or false: a dimension is unknown or the product overflows. */
bool teg_mil_count(const struct teg_mil_type *type, size_t *n);
/* Bytes of n elements, packed; false: overflow, or strings. */
bool teg_mil_bytes(enum teg_mil_dtype dtype, size_t n, size_t *n_bytes);
void teg_mil_print_type(struct teg_buf *out, const struct teg_mil_type *type);
/* By MIL's DataType number (protobuf) or text name; false: none. */
bool teg_mil_dtype_by_number(uint64_t number, enum teg_mil_dtype *dtype);
bool teg_mil_dtype_by_name(struct teg_span name, enum teg_mil_dtype *dtype);
uint32_t teg_mil_dtype_number(enum teg_mil_dtype dtype);
/* Type code of a record in a weight file; 0: such values never lie there (bool, string, 64 bits). */
uint32_t teg_mil_blob_code(enum teg_mil_dtype dtype);

#endif
