package topview

import (
	"github.com/gdamore/tcell/v2"
)

// Run shows the view until the user quits or stop is closed. It calls the
// functions received from tick, unless the user has paused it.
func (v *View) Run(s tcell.Screen, tick <-chan func(*View), stop <-chan struct{}) {
	events, quit := make(chan tcell.Event), make(chan struct{})
	defer close(quit)
	// ChannelEvents ends when quit is closed, and closes events when the screen is finished.
	go s.ChannelEvents(events, quit)
	paused := false
	for {
		select {
		case <-stop:
			return
		case update := <-tick:
			if paused {
				continue // an update that arrives during a pause is dropped, not delayed
			}
			update(v)
		case e, ok := <-events:
			if !ok {
				return
			}
			switch e := e.(type) {
			case *tcell.EventResize:
				s.Sync()
			case *tcell.EventKey:
				if !v.key(s, e, &paused) {
					return
				}
			}
		}
		v.Draw(s)
	}
}

// key handles a key; it returns false if the user quits.
func (v *View) key(s tcell.Screen, e *tcell.EventKey, paused *bool) bool {
	_, height := s.Size()
	switch e.Key() {
	case tcell.KeyCtrlC, tcell.KeyEscape:
		return false
	case tcell.KeyTab:
		v.Next()
	case tcell.KeyUp:
		v.move(-1)
	case tcell.KeyDown:
		v.move(1)
	case tcell.KeyPgUp:
		v.move(-height)
	case tcell.KeyPgDn:
		v.move(height)
	case tcell.KeyHome:
		v.move(-v.count())
	case tcell.KeyEnd:
		v.move(v.count())
	case tcell.KeyEnter:
		v.fold()
	case tcell.KeyRune:
		switch e.Rune() {
		case 'q':
			return false
		case 'o':
			v.order()
		case ' ':
			*paused = !*paused
		case 'k':
			v.move(-1)
		case 'j':
			v.move(1)
		}
	}
	return true
}
