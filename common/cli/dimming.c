#include "common/cli/dimming.h"

void bd_dimming_set(FILE *out, bd_dimming *dimming, bool bright)
{
    // Escapes of intensity alone: a colour that was set before stays.
    static const char *const colored[] = {"\x1b[2m", "\x1b[22m"}, *const plain[] = {"+}", "{+"};
    if (bright != dimming->bright)
        fputs(dimming->color ? colored[bright] : plain[bright], out);
    dimming->bright = bright;
}

void bd_dimming_end(FILE *out, bd_dimming *dimming)
{
    bd_dimming_set(out, dimming, dimming->color);
}
