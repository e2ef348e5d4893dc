module ehasm/bench

go 1.26.0

replace ehasm => ../

require ehasm v0.0.0

require (
	github.com/twitchyliquid64/golang-asm v0.15.1 // indirect
	golang.org/x/arch v0.32.0 // indirect
)
