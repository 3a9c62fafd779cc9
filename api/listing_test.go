package api_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// listing is what a package exports, a line each, in order: two listings differ where a program that compiles with the one
// may not with the other. Names of parameters are left out, for they bind nobody.
func listing(p *types.Package) []string {
	l := &lister{pkg: p, uses: map[string]bool{}}
	for _, name := range p.Scope().Names() {
		if object := p.Scope().Lookup(name); object.Exported() {
			l.object(object)
		}
	}
	// Of a type that another module has the other lines show no more than its package's name, which v9 and v10 share.
	for path := range l.uses {
		l.add("uses %s", path)
	}
	slices.Sort(l.lines)
	return slices.Compact(l.lines)
}

type lister struct {
	pkg   *types.Package
	uses  map[string]bool
	lines []string
}

func (l *lister) add(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *lister) object(object types.Object) {
	switch object := object.(type) {
	case *types.Const:
		l.add("const %s %s = %s", object.Name(), l.text(object.Type()), object.Val().ExactString())
	case *types.Var:
		l.add("var %s %s", object.Name(), l.text(object.Type()))
	case *types.Func:
		l.add("func %s%s", object.Name(), l.signature(object))
	case *types.TypeName:
		l.typeName(object)
	}
}

func (l *lister) typeName(object *types.TypeName) {
	name := object.Name()
	if object.IsAlias() {
		l.add("type %s = %s", name, l.text(types.Unalias(object.Type())))
		return
	}
	named := object.Type().(*types.Named)
	head := "type " + name + l.parameters(named)
	switch u := named.Underlying().(type) {
	case *types.Struct:
		l.fields(head, u)
	case *types.Interface:
		l.abstract(head, u)
		return
	default:
		l.add("%s %s", head, l.text(u))
	}
	l.methods(name, named)
}

func (l *lister) parameters(named *types.Named) string {
	var list []string
	for p := range named.TypeParams().TypeParams() {
		list = append(list, p.Obj().Name()+" "+l.text(p.Constraint()))
	}
	if list == nil {
		return ""
	}
	return "[" + strings.Join(list, ", ") + "]"
}

func (l *lister) fields(head string, s *types.Struct) {
	l.add("%s struct", head)
	for f := range s.Fields() {
		if !f.Exported() {
			continue
		}
		if f.Embedded() {
			l.add("%s struct, embeds %s", head, l.text(f.Type()))
		} else {
			l.add("%s struct, %s %s", head, f.Name(), l.text(f.Type()))
		}
		// What people fill in they may compare, too, or have as a key of a map. A new field can take that away.
		if types.Comparable(s) {
			l.add("%s struct, comparable", head)
		}
	}
}

// abstract has all methods of an interface in one line, so that a new one changes it: a type that implements the interface has
// to add it. One that has unexported methods nobody else can implement, and it may grow.
func (l *lister) abstract(head string, i *types.Interface) {
	if !i.IsMethodSet() {
		l.add("%s %s", head, l.text(i))
		return
	}
	var names []string
	closed := false
	for m := range i.Methods() {
		if !m.Exported() {
			closed = true
			continue
		}
		names = append(names, m.Name())
		l.add("%s interface, %s%s", head, m.Name(), l.signature(m))
	}
	if closed {
		names = []string{"unexported methods"}
	}
	l.add("%s interface { %s }", head, strings.Join(names, ", "))
}

// methods are those of a value and of a pointer to one, promoted ones too.
func (l *lister) methods(name string, named *types.Named) {
	values := types.NewMethodSet(named)
	for m := range types.NewMethodSet(types.NewPointer(named)).Methods() {
		if !m.Obj().Exported() {
			continue
		}
		receiver := "*" + name
		if values.Lookup(l.pkg, m.Obj().Name()) != nil {
			receiver = name
		}
		l.add("method (%s) %s%s", receiver, m.Obj().Name(), l.signature(m.Obj().(*types.Func)))
	}
}

// signature is that of a function or method, from its type parameters or parentheses on.
func (l *lister) signature(f *types.Func) string {
	return strings.TrimPrefix(l.text(f.Signature()), "func")
}

func (l *lister) text(t types.Type) string {
	if basic, ok := t.(*types.Basic); ok {
		return basic.Name() // "untyped int", too
	}
	return nameless(types.TypeString(t, func(p *types.Package) string {
		if p == l.pkg {
			return ""
		}
		if first, _, _ := strings.Cut(p.Path(), "/"); strings.Contains(first, ".") && !strings.HasPrefix(p.Path(), module) {
			l.uses[p.Path()] = true
		}
		return p.Name()
	}))
}

// nameless is a type's text without the names of parameters and results, in whatever function types are part of it.
func nameless(text string) string {
	fset := token.NewFileSet()
	prefix := "package p\ntype _ "
	if strings.HasPrefix(text, "func[") { // which is no type, but a function has it
		prefix, text = "package p\nfunc _", strings.TrimPrefix(text, "func")
	}
	file, err := parser.ParseFile(fset, "", prefix+text, parser.SkipObjectResolution)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", text, err))
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if f, ok := n.(*ast.FuncType); ok {
			anonymous(f.Params)
			anonymous(f.Results)
		}
		return true
	})
	var b bytes.Buffer
	if err := printer.Fprint(&b, fset, file.Decls[0]); err != nil {
		panic(err)
	}
	text = strings.TrimPrefix(strings.TrimPrefix(b.String(), "type _ "), "func _")
	return strings.Join(strings.Fields(text), " ")
}

// anonymous leaves one field for each parameter. go/types writes none that share a type.
func anonymous(list *ast.FieldList) {
	if list == nil {
		return
	}
	for _, field := range list.List {
		field.Names = nil
	}
}
