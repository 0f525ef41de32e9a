/* The amx kernel with emulated instructions (AMX tiles, and bfloat16 in AVX-512), for machines that do not have them. */
#define PL_AMX_EMULATE
#include "amx_emulate.h"

#define pl_kernel_amx pl_kernel_amx_emulated
#include "model/cpu/x86/kernel_amx.c"

#define EMULATED_KERNEL pl_kernel_amx_emulated
#define EMULATED_NAME "amx (emulated)"
#include "op_emulated.h"
