#include <stdio.h>

int main(int argc, char **argv)
{
    (void)argv;
    puts(argc > 1 ? "with an argument" : "without");
    return 0;
}
