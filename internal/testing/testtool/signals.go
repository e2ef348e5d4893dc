package testtool

import (
	"os"
	"os/signal"
	"syscall"
)

// CatchIgnored catches interrupts and hang-ups if this process ignores them, as below nohup or a shell's &. The
// programs that it runs then have the default, as from a terminal; they would ignore what a test sends them.
func CatchIgnored() {
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}
