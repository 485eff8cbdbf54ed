/* SPDX-FileCopyrightText: 2026 The energon-pack authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loop of patchify.py: bytes through a table, in the order of the patches. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030c0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    Py_ssize_t present, frame_stride, height, width; /* of the band, in frames, bytes and pixels */
    Py_ssize_t patch, merge, temporal;
} Shape;

/* Values are copied by size: float32 as uint32_t, bfloat16 as uint16_t. A missing frame of the
   temporal patch repeats the one before, which was written just before it. */
#define DEFINE_WRITE(NAME, VALUE)                                                                  \
    static inline VALUE *NAME##_patch(VALUE *out, const uint8_t *corner, const VALUE *table,       \
                                      const Shape *s, Py_ssize_t patch) {                          \
        const Py_ssize_t area = patch * patch;                                                     \
        for (Py_ssize_t channel = 0; channel < 3; channel++, table += 256)                         \
            for (Py_ssize_t t = 0; t < s->temporal; t++) {                                         \
                if (t >= s->present) {                                                             \
                    memcpy(out, out - area, (size_t)area * sizeof(VALUE));                         \
                    out += area;                                                                   \
                    continue;                                                                      \
                }                                                                                  \
                const uint8_t *row = corner + t * s->frame_stride + channel;                       \
                for (Py_ssize_t i = 0; i < patch; i++, row += s->width * 3, out += patch)          \
                    for (Py_ssize_t j = 0; j < patch; j++) out[j] = table[row[3 * j]];             \
            }                                                                                      \
        return out;                                                                                \
    }                                                                                              \
    static void NAME(void *target, const uint8_t *band, const void *table, const Shape *s) {       \
        const Py_ssize_t step = s->patch * s->merge;                                               \
        VALUE *out = target;                                                                       \
        for (Py_ssize_t y = 0; y < s->height; y += step)                                           \
            for (Py_ssize_t x = 0; x < s->width; x += step)                                        \
                for (Py_ssize_t v = y; v < y + step; v += s->patch)                                \
                    for (Py_ssize_t u = x; u < x + step; u += s->patch) {                          \
                        const uint8_t *corner = band + (v * s->width + u) * 3;                     \
                        if (s->patch == 16)                                                        \
                            out = NAME##_patch(out, corner, table, s, 16);                         \
                        else if (s->patch == 14)                                                   \
                            out = NAME##_patch(out, corner, table, s, 14);                         \
                        else                                                                       \
                            out = NAME##_patch(out, corner, table, s, s->patch);                   \
                    }                                                                              \
    }

DEFINE_WRITE(write_bytes, uint8_t)
DEFINE_WRITE(write_halves, uint16_t)
DEFINE_WRITE(write_words, uint32_t)

static PyObject *write_patches(PyObject *self, PyObject *args) {
    unsigned long long out, band, table;
    Py_ssize_t itemsize;
    Shape s;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKn(nnnn)(nnn)", &out, &band, &table, &itemsize, &s.present,
                          &s.frame_stride, &s.height, &s.width, &s.patch, &s.merge, &s.temporal))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    (itemsize == 1 ? write_bytes : itemsize == 2 ? write_halves : write_words)(
        (void *)(uintptr_t)out, (const uint8_t *)(uintptr_t)band, (const void *)(uintptr_t)table,
        &s);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"write_patches", write_patches, METH_VARARGS,
     "write_patches(out, band, table, itemsize, (present, frame_stride, height, width), "
     "(patch, merge, temporal))\n\n"
     "The first three are addresses: of the patches, of bytes with innermost channels, and of\n"
     "3 * 256 values of itemsize bytes."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_patchify", NULL, -1, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__patchify(void) { return PyModule_Create(&module); }
