package allowlist

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/syntax"
)

// whole is the list without options. It is made at its first use, because a
// program that reads no command shall not pay for it at its start.
var whole = sync.OnceValue(func() *List {
	l, err := New(Options{})
	if err != nil {
		panic(fmt.Sprintf("allowlist: the list contradicts itself: %v", err))
	}
	return l
})

// Parse reads a command line by the whole list. Its error is an [*Error].
func Parse(command string) (*Pipeline, error) { return whole().Parse(command) }

// Validate says whether [Parse] would accept a command line.
func Validate(command string) error {
	_, err := Parse(command)
	return err
}

// Parse reads a command line and checks it whole. Its error is an [*Error].
func (l *List) Parse(command string) (*Pipeline, error) {
	p, err := l.parse(command)
	if err != nil {
		if hint := Typographic(command); hint != "" {
			err.Message += "; " + hint
		}
		return nil, err
	}
	return p, nil
}

func (l *List) parse(src string) (_ *Pipeline, err *Error) {
	defer func() {
		if r := recover(); r != nil { // the parser's: it reads what it was never tested with
			err = &Error{Rule: "syntax", Found: shorten(src), Offset: 0, arg: -1,
				Message: "the command can't be read: write it in a simpler way"}
		}
	}()
	starts, err := l.scan(src)
	if err != nil {
		return nil, err
	}
	if l.opts.Strict {
		if err := literal(src); err != nil {
			return nil, err
		}
	}
	r, err := l.read(src)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(r.starts, starts) {
		return nil, unread(src, 0, len(src))
	}
	return &r.out, nil
}

// read makes a pipeline of what the parser finds. It is the second reader: it
// may be given only what has passed the scanner.
func (l *List) read(src string) (*reader, *Error) {
	// A parser for each call: it keeps state, and making one is cheap.
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(src), "")
	if err != nil || len(file.Stmts) != 1 {
		return nil, unread(src, 0, len(src))
	}
	r := &reader{list: l, src: src}
	if err := r.pipeline(file.Stmts[0]); err != nil {
		return nil, err
	}
	return r, nil
}

// unread is the refusal of what passed the scanner and that the parser reads
// otherwise, or not at all. No input is known that leads here.
func unread(src string, from, to int) *Error {
	return refuse(src, from, to, "syntax", "can't be read as simple commands joined by | and &&: write it in a simpler way, and quote what is text with single quotes")
}

// reader makes a pipeline of the parser's tree. It knows a few kinds of nodes,
// with a few of their fields set, and refuses all others: what a later version
// of the parser learns to read is refused until someone has thought about it.
type reader struct {
	list   *List
	src    string
	out    Pipeline
	starts []int // where the words begin
}

// pipeline reads a statement at the top: steps joined by &&, which lean left.
func (r *reader) pipeline(stmt *syntax.Stmt) *Error {
	if and, ok := stmt.Cmd.(*syntax.BinaryCmd); ok && and.Op == syntax.AndStmt && bare(stmt) {
		if err := r.pipeline(and.X); err != nil {
			return err
		}
		return r.pipeline(and.Y)
	}
	r.out.Steps = append(r.out.Steps, Step{})
	return r.step(stmt)
}

// step reads stages joined by |.
func (r *reader) step(stmt *syntax.Stmt) *Error {
	if !bare(stmt) {
		return r.unread(stmt)
	}
	switch cmd := stmt.Cmd.(type) {
	case *syntax.CallExpr:
		return r.stage(cmd)
	case *syntax.BinaryCmd:
		if cmd.Op != syntax.Pipe {
			return r.unread(stmt)
		}
		if err := r.step(cmd.X); err != nil {
			return err
		}
		return r.step(cmd.Y)
	}
	return r.unread(stmt)
}

// bare says whether a statement is its command and nothing else.
func bare(s *syntax.Stmt) bool {
	return s.Cmd != nil && !s.Negated && !s.Background && !s.Coprocess && !s.Disown &&
		len(s.Redirs) == 0 && !s.Semicolon.IsValid()
}

func (r *reader) unread(n syntax.Node) *Error {
	from := min(int(n.Pos().Offset()), len(r.src))
	return unread(r.src, from, max(from, min(int(n.End().Offset()), len(r.src))))
}

// stage reads a simple command and has its arguments checked.
func (r *reader) stage(call *syntax.CallExpr) *Error {
	var stage Stage
	for _, a := range call.Assigns {
		env, err := r.env(a)
		if err != nil {
			return err
		}
		stage.Env = append(stage.Env, env)
	}
	if len(call.Args) == 0 {
		return r.unread(call)
	}
	for i, w := range call.Args {
		r.starts = append(r.starts, int(w.Pos().Offset()))
		if i == 0 {
			if stage.Name = w.Lit(); !r.list.has(stage.Name) {
				return r.unread(w)
			}
			stage.Args = make([]Arg, 0, len(call.Args)-1)
			continue
		}
		arg, err := r.word(w)
		if err != nil {
			return err
		}
		stage.Args = append(stage.Args, arg)
	}
	if err := r.list.checkStage(stage); err != nil {
		at := min(max(err.arg+1, 0), len(call.Args)-1)
		return err.at(r.src, int(call.Args[at].Pos().Offset()))
	}
	step := &r.out.Steps[len(r.out.Steps)-1]
	step.Stages = append(step.Stages, stage)
	return nil
}
