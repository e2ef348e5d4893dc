// Package topview shows on a terminal what a program is doing: the functions that take most of
// its time, or the tree of its stacks.
//
//	stacks --Set--> View --Draw--> a tcell.Screen
package topview
