// Package playground is a page on which a visitor takes locks, pauses a holder, and sees the
// fencing token refuse its late write. What the page runs is this library, over package memory, as
// WebAssembly: nothing on it is drawn.
//
// `make playground` writes it to dist/playground.html, and the page of package stories beside it.
// The program has two halves: main_js.go is what runs in the page, build.go puts the page together.
package main
