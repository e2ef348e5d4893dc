// Package topview shows what a program does at the moment on a terminal: the functions that take
// most of its time, or the tree of its stacks.
//
//	stacks --Set--> View --Draw--> a tcell.Screen
package topview
