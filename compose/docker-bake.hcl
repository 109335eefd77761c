# Our images for several machines: make image, or
#
#   docker buildx bake --file compose/docker-bake.hcl --set '*.platform=linux/arm64'
#
# From the root of the checkout. arm64 is Grace (GH200, GB200). Where the builder has no machine of a kind, it needs QEMU
# (docker run --privileged --rm tonistiigi/binfmt --install arm64); nothing is compiled, so minutes are enough.
variable "PYROMETER_VERSION" { default = "0.2.0" }
# With a slash at the end.
variable "IMAGE_REGISTRY" { default = "" }
variable "IMAGE_PLATFORMS" { default = "linux/amd64,linux/arm64" }
variable "PYTHON_IMAGE" { default = "python:3.13-slim-trixie" }
variable "PIP_INDEX_URL" { default = "" }

group "default" { targets = ["exporters", "alerting", "demo"] }

target "image" {
  context    = "."
  dockerfile = "compose/Dockerfile"
  platforms  = split(",", IMAGE_PLATFORMS)
  args = {
    PYTHON_IMAGE  = PYTHON_IMAGE
    PIP_INDEX_URL = PIP_INDEX_URL == "" ? null : PIP_INDEX_URL
  }
  labels = {
    "org.opencontainers.image.title"    = "Pyrometer"
    "org.opencontainers.image.version"  = PYROMETER_VERSION
    "org.opencontainers.image.licenses" = "Apache-2.0"
  }
  attest = ["type=sbom", "type=provenance,mode=max"]
}

target "exporters" {
  inherits = ["image"]
  target   = "exporters"
  tags     = ["${IMAGE_REGISTRY}pyrometer-exporters:${PYROMETER_VERSION}"]
}

target "alerting" {
  inherits = ["image"]
  target   = "alerting"
  tags     = ["${IMAGE_REGISTRY}pyrometer-alerting:${PYROMETER_VERSION}"]
}

target "demo" {
  inherits = ["image"]
  target   = "demo"
  tags     = ["${IMAGE_REGISTRY}pyrometer-demo:${PYROMETER_VERSION}"]
}
