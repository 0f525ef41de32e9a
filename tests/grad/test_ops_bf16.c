/* The bf16 kernel with emulated instructions (dot products of bfloat16), for machines that do not have them. */
#define PL_AMX_EMULATE
#include "amx_emulate.h"

#define pl_kernel_bf16 pl_kernel_bf16_emulated
#include "model/cpu/x86/kernel_bf16.c"

#define EMULATED_KERNEL pl_kernel_bf16_emulated
#define EMULATED_NAME "bf16 (emulated)"
#include "op_emulated.h"
