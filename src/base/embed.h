/* SPDX-License-Identifier: Apache-2.0
 *
 * embed.h -- a file as part of the program, put in by the assembler.
 *
 * YB_EMBED(yb_cli_chart, "/path/of/file") at file scope makes yb_cli_chart[] the bytes of the file,
 * with a 0 behind them, and yb_cli_chart_end the address of that 0.
 */
#ifndef YB_BASE_EMBED_H
#define YB_BASE_EMBED_H

#define YB_EMBED(name, path)                         \
    __asm__(".section .rodata\n"                     \
            ".hidden " #name "\n"                    \
            ".hidden " #name "_end\n"                \
            ".global " #name "\n"                    \
            ".global " #name "_end\n" #name ":\n"    \
            ".incbin \"" path "\"\n" #name "_end:\n" \
            ".byte 0\n"                              \
            ".previous\n");                          \
    extern const char name[];                        \
    extern const char name##_end[]

#endif /* YB_BASE_EMBED_H */
