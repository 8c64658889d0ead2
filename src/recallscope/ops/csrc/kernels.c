/* The loops of full Mamba that torch would spell as dozens of passes over memory: the selective scan and the
 * convolution before it, forward and backward, in float32 and float64. Plain C, called through ctypes.
 *
 * Every function returns 0, or a code of the enum below. Work is cut into pieces whose number and order of
 * summation depend on the shapes alone: results are the same for any number of threads.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { DONE = 0, OUT_OF_MEMORY = 1, OUT_OF_RANGE = 2 };
#ifndef BLOCK
#define BLOCK 32 /* channels in one vector loop */
#endif

#include "pieces.h"
#include "arguments.h"
#include "asked.h"

#define real float
#define bits uint32_t
#define NAME(name) name##_f32
#define MANTISSA_BITS 23
#define EXPONENT_BIAS 127
#define ROUNDING_MAGIC 12582912.0f /* 1.5 * 2^23: adding it rounds to an integer, which is then its lowest bits */
#define EXP_LOWEST -86.6f
#define EXP_HIGHEST 89.0f
#define LOG2_HIGH 0.693359375f /* few bits, so that k times it is exact */
#define LOG2_LOW -2.12194440054690583e-4f
static inline float twice_exp_poly_f32(float r) { /* relative error 2e-9 */
    return 2 * 1.0000000005541647956f +
           r * (2 * 1.0000000363230943558f +
                r * (2 * 0.49999992079840399992f +
                     r * (2 * 0.16666420170269649412f +
                          r * (2 * 0.041668225566092764725f +
                               r * (2 * 0.0083748157781556314305f + r * (2 * 0.0013836846136895651189f))))));
}
static inline float atanh_poly_f32(float w) { /* on [0, 1/9], relative error 4e-9 */
    return 1.0000000039605190732f +
           w * (0.33333157341064237464f +
                w * (0.20012455139769060696f + w * (0.13980301373585733471f + w * 0.14089167543367272385f)));
}
#include "lanes.h"
#include "scan.h"
#include "scan_back.h"
#include "conv.h"
#undef real
#undef bits
#undef NAME
#undef MANTISSA_BITS
#undef EXPONENT_BIAS
#undef ROUNDING_MAGIC
#undef EXP_LOWEST
#undef EXP_HIGHEST
#undef LOG2_HIGH
#undef LOG2_LOW

#define real double
#define bits uint64_t
#define NAME(name) name##_f64
#define MANTISSA_BITS 52
#define EXPONENT_BIAS 1023
#define ROUNDING_MAGIC 6755399441055744.0 /* 1.5 * 2^52 */
#define EXP_LOWEST -707.7
#define EXP_HIGHEST 710.0
#define LOG2_HIGH 6.93145751953125e-1
#define LOG2_LOW 1.42860682030941723212e-6
static inline double twice_exp_poly_f64(double r) { /* relative error 3e-18 */
    static const double c[12] = {
        0.9999999999999999971,    1.0000000000000000304,    0.50000000000000176855,   0.16666666666666168701,
        0.041666666666492767992,  0.0083333333335592534604, 0.0013888888951223825122, 0.0001984126943271529734,
        0.000024801486521580922491, 2.7557622499311845433e-6, 2.7632293229705629081e-7, 2.4994314816236954106e-8};
    double sum = c[11];
    for (int i = 10; i >= 0; i--) sum = sum * r + c[i];
    return 2 * sum;
}
static inline double atanh_poly_f64(double w) { /* on [0, 1/9], relative error 1e-18 */
    static const double c[11] = {
        1.0000000000000000012,   0.33333333333333067117,  0.20000000000095163219,  0.1428571427246251379,
        0.11111112055889120648,  0.090908698937952085631, 0.076933177281575978472, 0.066500512458991051903,
        0.06056124544910556113,  0.041578419778950164674, 0.085300314600527547766};
    double sum = c[10];
    for (int i = 9; i >= 0; i--) sum = sum * w + c[i];
    return sum;
}
#include "lanes.h"
#include "scan.h"
#include "scan_back.h"
#include "conv.h"
