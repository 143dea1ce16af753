package srt

import (
	"errors"
	"fmt"
	"os"
	"testing"
)

// A fault of the wall names its layer once, and is found by both its types.
func TestLayerIsNamedOnce(t *testing.T) {
	layer := &LayerError{Layer: layerUserns, Err: fmt.Errorf("clone: %w", os.ErrPermission), Remedy: "allow it"}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{layer, "userns: clone: permission denied (allow it)"},
		{errors.Join(layer, nil), "userns: clone: permission denied (allow it)"},
		{errors.Join(layer, errors.New("and a group is left")), "userns: clone: permission denied (allow it)\nand a group is left"},
		{errors.New("too many files"), "too many files"},
	} {
		err := infra(tt.err)
		if err.Error() != tt.want {
			t.Errorf("%q, want %q", err, tt.want)
		}
		if !errors.Is(err, tt.err) || errors.Is(tt.err, layer) && (layerOf(err) != layerUserns || !errors.Is(err, os.ErrPermission)) {
			t.Errorf("%q lost its cause", err)
		}
	}
}
