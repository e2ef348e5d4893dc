/* Opens a file and leaves it open; which descriptor it is, is its caller's doing. With "moved" stderr itself becomes that file. */
#include <execinfo.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    void *pcs[8];
    int fd = open(argv[1], O_CREAT | O_WRONLY | O_TRUNC, 0644);
    if (argc > 2 && strcmp(argv[2], "moved") == 0)
        fd = dup2(fd, 2);
    if (write(fd, "data\n", 5) != 5)
        return 1;
    backtrace(pcs, 8);
    return argc == 2 && fd != 2;
}
