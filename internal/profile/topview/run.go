package topview

import (
	"unicode/utf8"

	"github.com/gdamore/tcell/v2"
)

// Run shows the view until the user quits or stop is closed. It calls the functions received from tick, unless the
// user has paused it. The view is its goroutine's meanwhile.
func (v *View) Run(s tcell.Screen, tick <-chan func(*View), stop <-chan struct{}) {
	events, quit := make(chan tcell.Event), make(chan struct{})
	defer close(quit)
	// ChannelEvents ends when quit is closed, and closes events when the screen is finished.
	go s.ChannelEvents(events, quit)
	for {
		select {
		case <-stop:
			return
		case update := <-tick:
			if v.paused {
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
				if !v.key(s, e) {
					return
				}
			}
		}
		v.Draw(s)
	}
}

// key handles a key; it returns false if the user quits.
func (v *View) key(s tcell.Screen, e *tcell.EventKey) bool {
	_, height := s.Size()
	if v.typing && e.Key() != tcell.KeyCtrlC {
		v.searchKey(e)
		return true
	}
	switch e.Key() {
	case tcell.KeyCtrlC:
		return false
	case tcell.KeyEscape: // back, or out
		if v.of == nil && v.search == "" {
			return false
		}
		if v.of == nil {
			v.search = ""
		}
		v.show(Functions, nil)
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
		v.enter()
	case tcell.KeyRune:
		switch e.Rune() {
		case 'q':
			return false
		case 'o':
			v.order()
		case ' ':
			v.paused = !v.paused
		case '/':
			v.search, v.typing = "", true
		case 'k':
			v.move(-1)
		case 'j':
			v.move(1)
		}
	}
	return true
}

// searchKey handles a key while a search is typed. The list follows each letter.
func (v *View) searchKey(e *tcell.EventKey) {
	switch e.Key() {
	case tcell.KeyRune:
		v.search += string(e.Rune())
	case tcell.KeyBackspace, tcell.KeyBackspace2:
		_, size := utf8.DecodeLastRuneInString(v.search)
		v.search = v.search[:len(v.search)-size]
	case tcell.KeyEscape:
		v.search, v.typing = "", false
	case tcell.KeyEnter:
		v.typing = false
	}
	v.show(v.Mode, v.of)
}
