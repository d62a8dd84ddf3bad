/* kernel/ref/vec_types.h: what all vec_*.h share before they define their vectors. */
#ifndef TEG_KERNEL_VEC_TYPES_H
#define TEG_KERNEL_VEC_TYPES_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernel/kernels.h"

/* 16 bytes: the unit in which codes are unpacked, on every instruction set. */
typedef uint8_t vb __attribute__((vector_size(16)));

/* For functions whose constant arguments (tile heights, element types) must vanish. */
#define TEG_INLINE static inline __attribute__((always_inline))

#endif
