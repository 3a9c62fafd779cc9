package main

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mutant is a change of one place: the text from begin to end becomes with.
type mutant struct {
	id, where, change string
	of                target
	file              string
	begin, end        int
	with              string
}

// sample returns all mutants of all targets, in an order that seed decides, one of each target in turn.
func sample(repo string, seed int) []mutant {
	var lists [][]mutant
	longest := 0
	for _, t := range targets {
		list := mutantsOf(repo, t)
		key := func(m mutant) string { return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, m.id))) }
		slices.SortFunc(list, func(a, b mutant) int { return cmp.Compare(key(a), key(b)) })
		lists = append(lists, list)
		longest = max(longest, len(list))
	}
	var all []mutant
	for i := range longest {
		for _, list := range lists {
			if i < len(list) {
				all = append(all, list[i])
			}
		}
	}
	return all
}

func mutantsOf(repo string, t target) (all []mutant) {
	files, err := filepath.Glob(filepath.Join(repo, t.dir, "*"))
	check(err)
	equals := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // a folder
		}
		add := func(where, change string, begin, end int, with string) {
			id := fmt.Sprintf("%s %s %s", t.dir, where, change)
			equals[id]++
			id = fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%s %d", id, equals[id])))[:16]
			all = append(all, mutant{id, where, short(change), t, file, begin, end, with})
		}
		switch {
		case strings.HasSuffix(file, ".lua"):
			lua(filepath.Base(file), string(text), add)
		case strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go"):
			golang(file, string(text), add)
		}
	}
	return all
}

// add adds a mutant: a change in where, described by change.
type add func(where, change string, begin, end int, with string)

var operators = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND, token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
}

func golang(file, text string, add add) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, text, 0)
	check(err)
	at := func(p token.Pos) int { return set.Position(p).Offset }
	for _, decl := range parsed.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		where := f.Name.Name
		if f.Recv != nil {
			where = strings.TrimPrefix(text[at(f.Recv.List[0].Type.Pos()):at(f.Recv.List[0].Type.End())], "*") + "." + where
		}
		source := func(n ast.Node) string { return text[at(n.Pos()):at(n.End())] }
		replace := func(n ast.Node, with string) {
			add(where, fmt.Sprintf("%s → %s", source(n), with), at(n.Pos()), at(n.End()), with)
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.IfStmt:
				replace(n.Cond, "!("+source(n.Cond)+")")
			case *ast.BinaryExpr:
				if other, ok := operators[n.Op]; ok {
					with := source(n.X) + " " + other.String() + " " + source(n.Y)
					add(where, source(n)+" → "+with, at(n.OpPos), at(n.OpPos)+len(n.Op.String()), other.String())
				}
			case *ast.ExprStmt, *ast.DeferStmt, *ast.GoStmt:
				replace(n, "")
			case *ast.AssignStmt:
				if n.Tok == token.ASSIGN {
					replace(n, "")
				}
			case *ast.ReturnStmt:
				if len(n.Results) > 0 && source(n.Results[len(n.Results)-1]) == "err" {
					replace(n.Results[len(n.Results)-1], "nil")
				}
			case *ast.BasicLit:
				if v, err := strconv.Atoi(n.Value); err == nil && n.Kind == token.INT {
					replace(n, strconv.Itoa(v+1))
				}
			}
			return true
		})
	}
}

var luaOperators = []struct {
	from *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`==`), "~="}, {regexp.MustCompile(`~=`), "=="},
	{regexp.MustCompile(` < `), " <= "}, {regexp.MustCompile(` > `), " >= "}, {regexp.MustCompile(` <= `), " < "}, {regexp.MustCompile(` >= `), " > "},
	{regexp.MustCompile(` and `), " or "}, {regexp.MustCompile(` or `), " and "}, {regexp.MustCompile(` \+ `), " - "}, {regexp.MustCompile(` - `), " + "},
	{regexp.MustCompile(`\bnot `), ""}, {regexp.MustCompile(`^\s*redis\.(p?call)\(.*\)$`), ""}, {regexp.MustCompile(`^\s*[a-z_]+ = .*$`), ""},
}

func lua(file, text string, add add) {
	offset := 0
	for line := range strings.Lines(text) {
		code, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "--")
		for _, o := range luaOperators {
			for _, at := range o.from.FindAllStringIndex(code, -1) {
				add(file, fmt.Sprintf("%s: %q → %q", strings.TrimSpace(code), code[at[0]:at[1]], o.to), offset+at[0], offset+at[1], o.to)
			}
		}
		offset += len(line)
	}
}
