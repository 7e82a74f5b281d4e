#include "textflag.h"

// A jump to each function of libSystem, and its address as a Go variable.

TEXT jump_host_self<>(SB),NOSPLIT,$0-0
	JMP	libc_mach_host_self(SB)
GLOBL	·hostSelf(SB), RODATA, $8
DATA	·hostSelf(SB)/8, $jump_host_self<>(SB)

TEXT jump_task_self<>(SB),NOSPLIT,$0-0
	JMP	libc_task_self_trap(SB)
GLOBL	·taskSelf(SB), RODATA, $8
DATA	·taskSelf(SB)/8, $jump_task_self<>(SB)

TEXT jump_host_statistics64<>(SB),NOSPLIT,$0-0
	JMP	libc_host_statistics64(SB)
GLOBL	·hostStatistics64(SB), RODATA, $8
DATA	·hostStatistics64(SB)/8, $jump_host_statistics64<>(SB)

TEXT jump_task_info<>(SB),NOSPLIT,$0-0
	JMP	libc_task_info(SB)
GLOBL	·taskInfo(SB), RODATA, $8
DATA	·taskInfo(SB)/8, $jump_task_info<>(SB)

TEXT jump_set_class<>(SB),NOSPLIT,$0-0
	JMP	libc_set_class(SB)
GLOBL	·setClass(SB), RODATA, $8
DATA	·setClass(SB)/8, $jump_set_class<>(SB)
