#include <stdio.h>

extern int early_frames[3], early_opened;

int main(void)
{
    printf("frames %d %d %d, opened %d\n", early_frames[0], early_frames[1], early_frames[2], early_opened);
    return 0;
}
