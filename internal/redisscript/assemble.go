package redisscript

import (
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Each command is one file in lua, which is read from top to bottom. What commands have in common
// is in lua/lib: functions and constants with names. Redis makes a function each time that its
// definition is run, which takes it 50 ns. So a command has only what it names, and where it needs
// that. In the place of a line
//
//	-- uses: enqueue, grant
//
// are those, and what they use in turn. In a block the line is indented, and they are the block's.

//go:embed lua
var sources embed.FS

func sourceOf(name string) string {
	source, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(source)
}

// definition is a function or constant of the library.
type definition struct{ name, text string }

// library has each definition behind those that it uses.
var library = func() (all []definition) {
	for _, file := range []string{"layout", "queue", "shares", "mark", "take"} {
		for _, found := range definitions.FindAllStringSubmatch(sourceOf("lib/"+file), -1) {
			all = append(all, definition{name: found[1], text: found[0]})
		}
	}
	return all
}()

var (
	definitions = regexp.MustCompile(`(?m)^local (?:function )?(\w+)(?:.*\bend| = .*|.*\n(?:(?: .*)?\n)*end)$`)
	usesLine    = regexp.MustCompile(`(?m)^ *-- uses: .*$`)
	comment     = regexp.MustCompile(`--.*`)
	word        = regexp.MustCompile(`\w+`)
)

// assemble returns the source of a command. It panics if that names what is not in the library, or
// does not name what it uses.
func assemble(command, source string) string {
	own := words(source)
	included := map[string]bool{} // true: outside of blocks
	source = usesLine.ReplaceAllStringFunc(source, func(line string) string {
		indent, list, _ := strings.Cut(line, "-- uses: ")
		needed := strings.Split(list, ", ")
		for _, name := range needed {
			if !slices.ContainsFunc(library, func(d definition) bool { return d.name == name }) {
				panic(fmt.Sprintf("%s.lua uses %s, which is not in the library", command, name))
			}
		}
		text := ""
		for _, d := range slices.Backward(library) {
			if slices.Contains(needed, d.name) && !included[d.name] {
				text = d.text + "\n" + text
				needed = append(needed, words(d.text)...)
				included[d.name] = indent == ""
			}
		}
		return text
	})
	for _, d := range library {
		if _, ok := included[d.name]; !ok && slices.Contains(own, d.name) {
			panic(fmt.Sprintf("%s.lua does not name %s, which it uses", command, d.name))
		}
	}
	return source
}

// words returns those of a source that are not in comments.
func words(source string) []string {
	return word.FindAllString(comment.ReplaceAllString(source, ""), -1)
}
