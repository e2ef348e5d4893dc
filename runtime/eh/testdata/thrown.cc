// Throws a hundred times.
__attribute__((noinline)) static int thrower(int n)
{
    if (n == 0)
        throw n;
    return thrower(n - 1) + 1;
}

int main()
{
    int caught = 0;
    for (int i = 0; i < 100; i++)
        try {
            thrower(5);
        } catch (int) {
            caught++;
        }
    return caught != 100;
}
