/* The loops that torch would spell as dozens of passes over memory: the selective scan of full Mamba, the convolution
 * before it, the recall of linear Mamba, in one layer or head or several, and matrix memories with a delta rule; forward
 * and backward, in float32 and float64. Plain C, through ctypes.
 *
 * Every function returns 0, or a code of the enum below. Work is cut into pieces whose number and order of
 * summation depend on the shapes alone: results are the same for any number of threads.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { DONE = 0, OUT_OF_MEMORY = 1, OUT_OF_RANGE = 2 };

/* Channels in one vector loop: BLOCK, or HALF where no more are left. The loops are compiled for both, in functions
 * of their own: inlined together, they would run out of registers. */
enum { BLOCK = 64, HALF = 32 };
#define INLINE static inline __attribute__((always_inline))
#define APART static __attribute__((noinline))
#define FOR_BOTH_WIDTHS(function, ...) \
    (W == BLOCK ? NAME(function)(__VA_ARGS__, BLOCK) : NAME(function)(__VA_ARGS__, HALF))

#define LOG2_OF_E 1.4426950408889634074
#define LOG_OF_2 0.69314718055994530942

#include "pieces.h"
#include "arguments.h"
#include "shared.h"

#define real float
#define bits uint32_t
#define NAME(name) name##_f32
#define MANTISSA_BITS 23
#define EXPONENT_BIAS 127
#define ROUNDING_MAGIC 12582912.0f /* 1.5 * 2^23: adding it rounds to an integer, which is then its lowest bits */
#define EXP2_LOWEST -125.0f
#define EXP2_HIGHEST 128.5f
#define LOG_OF_2_HIGH 0.693359375f /* few bits, so that k times it is exact */
#define LOG_OF_2_LOW -2.12194440054690583e-4f
static inline float twice_exp2_poly_f32(float r) { /* relative error 2e-9 */
    return 2 * 1.0000000005541647956f +
           r * (2 * 0.69314720573719575134f +
                r * (2 * 0.24022646890645520696f +
                     r * (2 * 0.05550328777105324799f +
                          r * (2 * 0.0096184889563311816196f +
                               r * (2 * 0.0013399931177239737967f + r * (2 * 0.00015345812161311629759f))))));
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
#include "table_scan.h"
#include "delta_scan.h"
#include "softmax.h"
#include "round.h"
#undef real
#undef bits
#undef NAME
#undef MANTISSA_BITS
#undef EXPONENT_BIAS
#undef ROUNDING_MAGIC
#undef EXP2_LOWEST
#undef EXP2_HIGHEST
#undef LOG_OF_2_HIGH
#undef LOG_OF_2_LOW

#define real double
#define bits uint64_t
#define NAME(name) name##_f64
#define MANTISSA_BITS 52
#define EXPONENT_BIAS 1023
#define ROUNDING_MAGIC 6755399441055744.0 /* 1.5 * 2^52 */
#define EXP2_LOWEST -1021.0
#define EXP2_HIGHEST 1024.5
#define LOG_OF_2_HIGH 6.93145751953125e-1
#define LOG_OF_2_LOW 1.42860682030941723212e-6
static inline double twice_exp2_poly_f64(double r) { /* relative error 3e-18 */
    static const double c[12] = {
        0.9999999999999999971,     0.69314718055994533046,    0.24022650695910156204,    0.055504108664819921605,
        0.0096181291075883352443,  0.0013333558146789921722,  0.00015403530462514432062, 0.000015252733489988525649,
        1.321543308967639918e-6,   1.0178198021671930844e-7,  7.0741056135081427963e-9,  4.4352827069572771511e-10};
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
#include "table_scan.h"
#include "delta_scan.h"
#include "softmax.h"
#include "round.h"

/* For Python: do both mean the same structures, and to what are channels padded? */
int64_t scan_arguments_size(void) { return sizeof(scan_arguments); }
int64_t conv_arguments_size(void) { return sizeof(conv_arguments); }
int64_t table_scan_arguments_size(void) { return sizeof(table_scan_arguments); }
int64_t softmax_arguments_size(void) { return sizeof(softmax_arguments); }
int64_t delta_arguments_size(void) { return sizeof(delta_arguments); }
int64_t round_arguments_size(void) { return sizeof(round_arguments); }
int64_t padding_size(void) { return HALF; }
