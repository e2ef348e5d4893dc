package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestDropIn: systemd reads back what the environment is to be.
func TestDropIn(t *testing.T) {
	assert.Regexp(t, `(?s)\A# /etc/systemd/system/UNIT\.service\.d/ehasm\.conf, for /usr/sbin/server\n(# .*\n)+\[Service\]\n`+
		`Environment="LD_PRELOAD=/opt/100%%/a\.so:/b\\\\\\"c\.so"\n\z`,
		dropIn("/usr/sbin/server", []string{`LD_PRELOAD=/opt/100%/a.so:/b\"c.so`}))
}
