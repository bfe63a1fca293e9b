// cert-manager's own controllers for one namespace of the testbed: CA and self-signed issuers, without webhook, without
// cainjector, without leader election. Upstream's main is not part of its module.
//
//	KUBECONFIG=... cert-manager NAMESPACE [--cluster-issuers]
//
// With --cluster-issuers it works in all namespaces, because cert-manager serves ClusterIssuers only then; NAMESPACE has their Secrets.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/cert-manager/cert-manager/pkg/controller"

	// Each registers its controllers.
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	"github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

const workers = 2

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	everywhere := len(os.Args) == 3 && os.Args[2] == "--cluster-issuers"
	if len(os.Args) != 2 && !everywhere {
		fmt.Fprintln(os.Stderr, "usage: KUBECONFIG=... cert-manager NAMESPACE [--cluster-issuers]")
		os.Exit(2)
	}
	if err := run(ctx, os.Args[1], everywhere); err != nil {
		fmt.Fprintln(os.Stderr, "cert-manager:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, namespace string, everywhere bool) error {
	watched := namespace
	if everywhere {
		watched = ""
	}
	// The ACME figures are parsed although no ACME controller runs; without back-off durations requests are not repeated.
	little := resource.MustParse("10m")
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig:         os.Getenv("KUBECONFIG"),
		KubernetesAPIQPS:   50,
		KubernetesAPIBurst: 100,
		Namespace:          watched,
		IssuerOptions:      controller.IssuerOptions{ClusterResourceNamespace: namespace},
		ACMEOptions: controller.ACMEOptions{
			HTTP01SolverResourceRequestCPU:    little,
			HTTP01SolverResourceRequestMemory: little,
			HTTP01SolverResourceLimitsCPU:     little,
			HTTP01SolverResourceLimitsMemory:  little,
		},
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: time.Second,
			CertificateRequestMaximumBackoffDuration: time.Minute,
		},
	})
	if err != nil {
		return err
	}
	// The shared context comes first: the constructors register their informers with it.
	base, err := factory.Build()
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	for name, construct := range controller.Known() {
		if name == clusterissuers.ControllerName && !everywhere {
			continue
		}
		run, err := construct(factory)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		go func() {
			if err := run.Run(workers, ctx); err != nil {
				failed <- fmt.Errorf("%s: %w", name, err)
			}
		}()
	}
	base.SharedInformerFactory.Start(ctx.Done())
	base.KubeSharedInformerFactory.Start(ctx.Done())
	fmt.Println("cert-manager runs in", namespace)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}
