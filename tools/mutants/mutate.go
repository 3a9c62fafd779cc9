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

// sample returns all mutants of targets, in an order that seed decides, one of each target in
// turn.
func sample(repo string, targets []target, seed int) []mutant {
	var lists [][]mutant
	longest := 0
	for _, t := range targets {
		list := mutantsOf(repo, t)
		key := func(m mutant) string { return hash(strconv.Itoa(seed), m.id) }
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
			id = hash(id, strconv.Itoa(equals[id]))[:16]
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

func hash(words ...string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(words, " "))))
}

// short returns a text in one line, cut.
func short(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 100 {
		s = string(r[:99]) + "…"
	}
	return s
}

// add adds a mutant: a change in where, described by change.
type add func(where, change string, begin, end int, with string)

var operators = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
}

// golang adds the mutants of a Go file. Those of a method are in "Receiver.Method", those of the
// value of a variable or constant in its name.
func golang(file, text string, add add) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, text, 0)
	check(err)
	g := source{set, text, add}
	for _, decl := range parsed.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			where := decl.Name.Name
			if decl.Recv != nil {
				where = strings.TrimPrefix(g.text(decl.Recv.List[0].Type), "*") + "." + where
			}
			if decl.Body != nil {
				g.walk(where, decl.Body, decl.Type)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				if value, ok := spec.(*ast.ValueSpec); ok {
					for _, v := range value.Values {
						g.walk(value.Names[0].Name, v, nil)
					}
				}
			}
		}
	}
}

// source is a Go file.
type source struct {
	set *token.FileSet
	all string
	put add
}

func (s source) at(p token.Pos) int     { return s.set.Position(p).Offset }
func (s source) text(n ast.Node) string { return s.all[s.at(n.Pos()):s.at(n.End())] }

// add adds a mutant that has another text in place of n, and is described by becomes.
func (s source) add(where string, n ast.Node, becomes, with string) {
	s.put(where, fmt.Sprintf("%s → %s", s.text(n), becomes), s.at(n.Pos()), s.at(n.End()), with)
}

// walk adds the mutants of what is in a function of a type.
func (s source) walk(where string, in ast.Node, of *ast.FuncType) {
	ast.Inspect(in, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			s.walk(where, n.Body, n.Type)
			return false
		case *ast.IfStmt:
			not := "!(" + s.text(n.Cond) + ")"
			s.add(where, n.Cond, not, not)
		case *ast.BinaryExpr:
			if other, ok := operators[n.Op]; ok {
				with := s.text(n.X) + " " + other.String() + " " + s.text(n.Y)
				begin := s.at(n.OpPos)
				s.put(where, s.text(n)+" → "+with, begin, begin+len(n.Op.String()), other.String())
			}
		case *ast.ExprStmt, *ast.DeferStmt, *ast.GoStmt, *ast.IncDecStmt, *ast.AssignStmt:
			if a, ok := n.(*ast.AssignStmt); !ok || a.Tok != token.DEFINE {
				s.add(where, n, "", "if false { "+s.text(n)+" }") // variables have to stay in use
			}
		case *ast.CaseClause:
			s.skip(where, n, n.Colon, n.Body)
		case *ast.CommClause:
			s.skip(where, n, n.Colon, n.Body)
		case *ast.ReturnStmt:
			if returnsError(of, len(n.Results)) {
				if last := n.Results[len(n.Results)-1]; s.text(last) != "nil" {
					s.add(where, last, "nil", "nil")
				}
			}
		case *ast.BasicLit:
			if v, err := strconv.Atoi(n.Value); err == nil && n.Kind == token.INT {
				s.add(where, n, strconv.Itoa(v+1), strconv.Itoa(v+1))
			}
		}
		return true
	})
}

// skip adds the mutant of a case that does nothing.
func (s source) skip(where string, n ast.Node, colon token.Pos, body []ast.Stmt) {
	if len(body) > 0 {
		begin := s.at(colon) + 1
		s.put(where, s.all[s.at(n.Pos()):begin]+" → break", begin, begin, " break; ")
	}
}

// returnsError reports whether a function has so many results, and the last is an error.
func returnsError(f *ast.FuncType, results int) bool {
	if f == nil || results == 0 || f.Results.NumFields() != results {
		return false
	}
	name, ok := f.Results.List[len(f.Results.List)-1].Type.(*ast.Ident)
	return ok && name.Name == "error"
}

var luaOperators = []struct {
	from *regexp.Regexp // if it has a group, only the group changes
	to   string
}{
	{regexp.MustCompile(`==`), "~="},
	{regexp.MustCompile(`~=`), "=="},
	{regexp.MustCompile(` < `), " <= "},
	{regexp.MustCompile(` <= `), " < "},
	{regexp.MustCompile(` > `), " >= "},
	{regexp.MustCompile(` >= `), " > "},
	{regexp.MustCompile(` and `), " or "},
	{regexp.MustCompile(` or `), " and "},
	{regexp.MustCompile(` \+ `), " - "},
	{regexp.MustCompile(` - `), " + "},
	{regexp.MustCompile(`\bnot `), ""},
	{regexp.MustCompile(`^\s*redis\.p?call\(.*\)$`), ""},
	{regexp.MustCompile(`^\s*[a-z_]+ = .*$`), ""},
	{regexp.MustCompile(`^\s*[a-z_]+\(.*\)$`), ""},
	{regexp.MustCompile(`\bif (.+) then`), "not ()"},
	{regexp.MustCompile(`\b\d+\b`), "+1"},
}

var (
	luaString = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	luaGoesOn = regexp.MustCompile(`(\band|\bor|[,{(+*/.-])\s*$`)
)

// lua adds the mutants of a Lua script, line by line. Those of a line are in its file.
func lua(file, text string, add add) {
	offset := 0
	for line := range strings.Lines(text) {
		blank := luaString.ReplaceAllStringFunc(line, func(s string) string {
			return strings.Repeat("'", len(s))
		})
		blank, _, _ = strings.Cut(strings.TrimSuffix(blank, "\n"), "--")
		code := line[:len(blank)]
		for _, o := range luaOperators {
			for _, at := range o.from.FindAllStringSubmatchIndex(blank, -1) {
				begin, end := at[len(at)-2], at[len(at)-1]
				from, with := code[begin:end], o.to
				switch {
				case with == "not ()":
					with = "not (" + from + ")"
				case with == "+1":
					v, err := strconv.Atoi(from)
					check(err)
					with = strconv.Itoa(v + 1)
				case with == "" && luaGoesOn.MatchString(blank):
					continue // a statement without its end
				}
				change := fmt.Sprintf("%s: %q → %q", strings.TrimSpace(code), from, with)
				add(file, change, offset+begin, offset+end, with)
			}
		}
		offset += len(line)
	}
}
