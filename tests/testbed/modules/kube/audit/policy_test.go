// Package audit holds the testbed's audit policy against the code that the API
// server judges requests with. It decides nothing: the policy is ../../../audit-policy.yaml.
package audit

import (
	"os"
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/yaml"
)

const file = "../../../audit-policy.yaml"

// The API server itself only warns about a field that it does not know.
func TestPolicyHasNoUnknownFields(t *testing.T) {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(b, &auditv1.Policy{}); err != nil {
		t.Error(err)
	}
}

func TestWhatIsWritten(t *testing.T) {
	p, err := policy.LoadPolicyFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	evaluator := policy.NewPolicyRuleEvaluator(p)
	account := func(namespace, name string) *user.DefaultInfo {
		return &user.DefaultInfo{Name: "system:serviceaccount:" + namespace + ":" + name,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}}
	}
	users := map[string]*user.DefaultInfo{
		"admin":       {Name: "admin", Groups: []string{"system:masters", "system:authenticated"}},
		"kubelet":     {Name: "system:node:testbed-1", Groups: []string{"system:nodes", "system:authenticated"}},
		"scheduler":   {Name: "system:kube-scheduler", Groups: []string{"system:authenticated"}},
		"apiserver":   {Name: "system:apiserver", Groups: []string{"system:masters"}},
		"provisioner": {Name: "holdfast-testbed:csi-provisioner", Groups: []string{"system:authenticated"}},
		"jobs":        account("kube-system", "job-controller"),
		"coredns":     account("kube-system", "coredns"),
		"holdfast":    account("holdfast-system", "holdfast"),
	}
	for _, c := range []struct {
		who, verb, group, resource, subresource string
		want                                    audit.Level
	}{
		// Holdfast's objects, whoever touches them, but for the system's looking.
		{"holdfast", "watch", "holdfast.dev", "etcdclusters", "", audit.LevelRequestResponse},
		{"holdfast", "patch", "holdfast.dev", "etcdclusters", "status", audit.LevelRequestResponse},
		{"admin", "create", "holdfast.dev", "etcdsnapshots", "", audit.LevelRequestResponse},
		{"jobs", "patch", "holdfast.dev", "etcdmembers", "", audit.LevelRequestResponse},
		{"jobs", "list", "holdfast.dev", "etcdmembers", "", audit.LevelNone},
		// What is made of them.
		{"holdfast", "patch", "", "pods", "", audit.LevelRequestResponse},
		{"holdfast", "create", "", "pods", "", audit.LevelRequestResponse},
		{"admin", "delete", "", "pods", "", audit.LevelRequestResponse},
		{"admin", "deletecollection", "", "persistentvolumeclaims", "", audit.LevelRequestResponse},
		{"jobs", "create", "", "pods", "", audit.LevelRequestResponse},
		{"kubelet", "delete", "", "pods", "", audit.LevelRequestResponse},
		{"holdfast", "create", "batch", "jobs", "", audit.LevelRequestResponse},
		// The same, read, and their subresources.
		{"holdfast", "list", "", "pods", "", audit.LevelMetadata},
		{"holdfast", "get", "", "persistentvolumeclaims", "", audit.LevelMetadata},
		{"kubelet", "patch", "", "pods", "status", audit.LevelMetadata},
		{"admin", "create", "", "pods", "eviction", audit.LevelMetadata},
		{"jobs", "update", "batch", "jobs", "status", audit.LevelMetadata},
		{"kubelet", "list", "", "pods", "", audit.LevelNone},
		// Never what is in a Secret or a token.
		{"admin", "create", "", "secrets", "", audit.LevelMetadata},
		{"holdfast", "get", "", "secrets", "", audit.LevelMetadata},
		{"admin", "patch", "", "secrets", "", audit.LevelMetadata},
		{"kubelet", "create", "", "serviceaccounts", "token", audit.LevelMetadata},
		{"kubelet", "create", "authentication.k8s.io", "tokenreviews", "", audit.LevelMetadata},
		{"kubelet", "watch", "", "secrets", "", audit.LevelNone},
		// Signs of life.
		{"kubelet", "update", "coordination.k8s.io", "leases", "", audit.LevelNone},
		{"apiserver", "update", "coordination.k8s.io", "leases", "", audit.LevelNone},
		{"kubelet", "create", "", "events", "", audit.LevelNone},
		{"scheduler", "create", "events.k8s.io", "events", "", audit.LevelNone},
		{"admin", "list", "", "events", "", audit.LevelNone},
		{"holdfast", "get", "coordination.k8s.io", "leases", "", audit.LevelNone},
		{"holdfast", "update", "coordination.k8s.io", "leases", "", audit.LevelMetadata},
		{"holdfast", "create", "events.k8s.io", "events", "", audit.LevelMetadata},
		// The rest.
		{"provisioner", "watch", "", "persistentvolumes", "", audit.LevelNone},
		{"provisioner", "create", "", "persistentvolumes", "", audit.LevelMetadata},
		{"coredns", "watch", "", "services", "", audit.LevelNone},
		{"scheduler", "create", "", "pods", "binding", audit.LevelMetadata},
		{"holdfast", "patch", "", "services", "", audit.LevelMetadata},
		{"admin", "create", "", "namespaces", "", audit.LevelMetadata},
	} {
		got := evaluator.EvaluatePolicyRule(authorizer.AttributesRecord{User: users[c.who], Verb: c.verb, APIGroup: c.group,
			Resource: c.resource, Subresource: c.subresource, Name: "x", ResourceRequest: true})
		if got.Level != c.want {
			t.Errorf("%s %s %s %s/%s: %s, not %s", c.who, c.verb, c.group, c.resource, c.subresource, got.Level, c.want)
		}
		if !slices.Contains(got.OmitStages, audit.StageRequestReceived) || slices.Contains(got.OmitStages, audit.StageResponseComplete) {
			t.Errorf("%s %s %s: stages left out: %v", c.who, c.verb, c.resource, got.OmitStages)
		}
	}
	for path, want := range map[string]audit.Level{"/readyz": audit.LevelNone, "/readyz/ping": audit.LevelNone, "/livez": audit.LevelNone,
		"/apis": audit.LevelMetadata, "/version": audit.LevelMetadata} {
		if got := evaluator.EvaluatePolicyRule(authorizer.AttributesRecord{User: users["admin"], Verb: "get", Path: path}); got.Level != want {
			t.Errorf("%s: %s, not %s", path, got.Level, want)
		}
	}
}
