// Prints what upstream's kubelet has to set, as JSON: feature gates, flags, and the fields of KubeletConfiguration with
// their defaults. scripts/upstream-settings runs it against the pinned release.
package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"

	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/featuregate"
	_ "k8s.io/component-base/logs/json/register" // as cmd/kubelet does: the flags of this format
	"k8s.io/kubelet/config/v1beta1"
	_ "k8s.io/kubernetes/cmd/kubelet/app" // registers the gates of logging
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/kubelet/apis/config"
	conversion "k8s.io/kubernetes/pkg/kubelet/apis/config/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
)

type gate struct {
	Stage        string   `json:"stage"`
	Default      bool     `json:"default"`
	Locked       bool     `json:"locked"`
	Dependencies []string `json:"dependencies"`
}

type flag struct {
	Shorthand  string `json:"shorthand"`
	Kind       string `json:"kind"`
	Default    string `json:"default"`
	Implied    string `json:"implied"`
	Deprecated string `json:"deprecated"`
	Hidden     bool   `json:"hidden"`
}

type field struct {
	Type    string `json:"type"`
	Default any    `json:"default"`
	Legacy  any    `json:"withoutFile"`
}

func main() {
	output := json.NewEncoder(os.Stdout)
	output.SetEscapeHTML(false)
	must(output.Encode(map[string]any{"gates": gates(), "flags": flags(), "fields": fields()}))
}

func gates() map[string]gate {
	found := map[string]gate{}
	needed := utilfeature.DefaultMutableFeatureGate.Dependencies()
	for name, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		stage := string(spec.PreRelease)
		if spec.PreRelease == featuregate.GA {
			stage = "GA"
		}
		dependencies := []string{}
		for _, each := range needed[name] {
			dependencies = append(dependencies, string(each))
		}
		found[string(name)] = gate{stage, spec.Default, spec.LockToDefault, dependencies}
	}
	return found
}

// The same calls in the same order as in app.NewKubeletCommand, which keeps its set of flags to itself.
func flags() map[string]flag {
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	set.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	options.NewKubeletFlags().AddFlags(set)
	options.AddKubeletConfigFlags(set, withoutFile())
	options.AddGlobalFlags(set)
	set.BoolP("help", "h", false, "")
	found := map[string]flag{}
	set.VisitAll(func(each *pflag.Flag) {
		kind, _ := pflag.UnquoteUsage(each)
		if each.NoOptDefVal != "" && each.Value.Type() != "bool" { // as the help text shows it
			kind += "[=" + each.NoOptDefVal + "]"
		}
		found[each.Name] = flag{each.Shorthand, kind, each.DefValue, each.NoOptDefVal, each.Deprecated, each.Hidden}
	})
	return found
}

func fields() map[string]field {
	inFile := v1beta1.KubeletConfiguration{}
	conversion.SetDefaults_KubeletConfiguration(&inFile)
	if inFile.EvictionHard == nil { // as the kubelet does once it has read a file
		inFile.EvictionHard = eviction.DefaultEvictionHard
	}
	legacy := v1beta1.KubeletConfiguration{}
	must(conversion.Convert_config_KubeletConfiguration_To_v1beta1_KubeletConfiguration(withoutFile(), &legacy, nil))
	found := map[string]field{}
	walk("", reflect.ValueOf(inFile), reflect.ValueOf(legacy), found)
	return found
}

func withoutFile() *config.KubeletConfiguration {
	made, err := options.NewKubeletConfiguration()
	must(err)
	return made
}

// walk adds the fields of an object. An object that is absent is a pointer to nothing, and so are its fields.
func walk(path string, inFile, legacy reflect.Value, found map[string]field) {
	for index := range inFile.NumField() {
		each := inFile.Type().Field(index)
		name, _, _ := strings.Cut(each.Tag.Get("json"), ",")
		one, other := inFile.Field(index), legacy.Field(index)
		kind := element(each.Type)
		switch {
		case path == "" && each.Anonymous: // apiVersion and kind
		case each.Anonymous:
			walk(path, one, other, found)
		case isSection(kind) && each.Type.Kind() == reflect.Pointer && one.IsNil():
			walkType(path+name+".", kind, found)
		case isSection(kind) && each.Type.Kind() == reflect.Pointer:
			walk(path+name+".", one.Elem(), other.Elem(), found)
		case isSection(kind):
			walk(path+name+".", one, other, found)
		default:
			found[path+name] = field{typeName(kind), plain(one), plain(other)}
			if kind.Kind() == reflect.Slice && isSection(kind.Elem()) {
				walkType(path+name+"[].", kind.Elem(), found)
			}
		}
	}
}

// walkType adds the fields of an object that no configuration has by default.
func walkType(path string, kind reflect.Type, found map[string]field) {
	for index := range kind.NumField() {
		each := kind.Field(index)
		name, _, _ := strings.Cut(each.Tag.Get("json"), ",")
		found[path+name] = field{Type: typeName(element(each.Type))}
	}
}

func element(kind reflect.Type) reflect.Type {
	if kind.Kind() == reflect.Pointer {
		return kind.Elem()
	}
	return kind
}

// isSection says whether a type is an object of fields, and not a value that is written in its own way.
func isSection(kind reflect.Type) bool {
	own := reflect.TypeFor[json.Marshaler]()
	return kind.Kind() == reflect.Struct && !kind.Implements(own) && !reflect.PointerTo(kind).Implements(own)
}

// typeName returns the name of a type; a type that only gives another name to a basic one is that one.
func typeName(kind reflect.Type) string {
	if kind.Kind() < reflect.Array || kind.Kind() == reflect.String {
		return kind.Kind().String()
	}
	return kind.String()
}

// plain returns a value as JSON has it. Lists and maps that are absent are empty: nothing distinguishes them.
func plain(value reflect.Value) any {
	switch {
	case value.Kind() == reflect.Slice && value.Len() == 0:
		return []any{}
	case value.Kind() == reflect.Map && value.Len() == 0:
		return map[string]any{}
	}
	return value.Interface()
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
