#!/bin/sh
# guide_11.sh: what chapter 11 of the guide shows: gradus train, search and their files, in a folder that
# is removed. Times differ from run to run, so they are cut off. GRADUS and DATA are set by the build.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
unset GRADUS_THREADS || true
cp "$DATA/iris.csv" "$DATA/diabetes.csv" .
gradus() { "$GRADUS" "$@"; }
if ! gradus train iris.csv --target species --epochs 1 --quiet --run try 2>why; then
    cat why
    exit 77 # a build without JSON
fi

echo "== first"
gradus train iris.csv --target species --epochs 100 >out
sed -n '1,8p' out
echo "== epochs"
sed -n '/ training /,/^$/p' out | grep . | cut -c1-47 | sed -n '1,5p;12p;23p'
echo "== folder"
ls runs/iris
echo "== eval"
gradus eval runs/iris | sed -n '1,16p'
echo "== config"
sed 's|"/.*/iris.csv"|"iris.csv"|' runs/iris/config.json
echo "== mistakes"
gradus train iris.csv --set optimizer.l=0.1 2>&1 || true
gradus train iris.csv --set epochs=many 2>&1 || true
gradus train iris.csv --set lr=0.1 2>&1 || true
echo "== patience"
gradus train diabetes.csv --target target --patience 5 --ema 0.9 --run patient | grep Ended
echo "== resume"
gradus train diabetes.csv --target target --epochs 40 --quiet --run whole
gradus train diabetes.csv --target target --epochs 40 --quiet --run killed &
until [ -f killed/config.json ]; do kill -0 $! || break; done
kill -9 $! 2>errors || true
wait $! 2>errors || true
gradus train --resume killed --quiet
cmp whole/model.safetensors killed/model.safetensors && echo "the same bytes"
echo "== search"
gradus search diabetes.csv --target target --epochs 27 --method halving --trials 9 \
    --try 'optimizer.lr=log(1e-4,1)' --try batch=16,32,64 --run s >out
sed -n '1,/^round 2/p' out
sed -n '/^round 2/,/^trial  *lr/p' out | sed '1d;$d'
echo "== table"
sed -n '/^trial  *lr/,$p' out | sed 's/  *[0-9]*:[0-9][0-9]\(  best\)*$/\1/; s/ *time$//'
