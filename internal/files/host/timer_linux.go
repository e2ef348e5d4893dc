package host

import "golang.org/x/sys/unix"

// StopTimer stops the timer of processor time, ITIMER_PROF of setitimer(2), before this process becomes another
// program: execve(2) keeps the timer and drops the handler of its signal, which then ends the program. A profiler that
// LD_PRELOAD has put into this process, too, has set it; in the program it sets it again.
func StopTimer() { unix.Setitimer(unix.ITIMER_PROF, unix.Itimerval{}) }
