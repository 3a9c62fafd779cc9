package main

import (
	"context"
	"encoding/json"
	"syscall/js"
)

// The page calls two functions: one makes a step, the other returns what there is to show, as JSON.
func main() {
	var p *play
	restart := func(checks bool) {
		if p != nil {
			p.close()
		}
		p = newPlay(checks)
	}
	restart(true)
	js.Global().Set("playgroundStep", js.FuncOf(func(_ js.Value, args []js.Value) any {
		who, what := args[0].String(), args[1].String()
		go func() { // what the page calls must not block
			if what == "restart" {
				restart(who == "true")
				return
			}
			p.step(context.Background(), who, what)
		}()
		return nil
	}))
	js.Global().Set("playgroundState", js.FuncOf(func(js.Value, []js.Value) any {
		text, err := json.Marshal(p.look())
		if err != nil {
			panic(err)
		}
		return string(text)
	}))
	js.Global().Call("playgroundReady")
	select {}
}
