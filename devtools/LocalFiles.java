import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FsConstants;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.local.LocalConfigKeys;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's file system of this machine, without its processes: Hadoop runs chmod for each file and directory that it
 * makes, and readlink twice for each that it renames. Here Java itself does what they do.
 */
public final class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new Raw());
    }

    static final class Raw extends RawLocalFileSystem {
        @Override
        public void setPermission(Path path, FsPermission permission) throws IOException {
            if (permission.getStickyBit()) {
                super.setPermission(path, permission); // Java has none
            } else {
                var symbols = PosixFilePermissions.fromString(permission.toString());
                Files.setPosixFilePermissions(pathToFile(path).toPath(), symbols);
            }
        }

        @Override
        public FileStatus getFileLinkStatus(Path path) throws IOException {
            File file = pathToFile(path);
            return Files.isSymbolicLink(file.toPath()) ? super.getFileLinkStatus(path) : getFileStatus(path);
        }
    }

    /** The file system as FileContext uses it. */
    public static final class Context extends ChecksumFs {
        public Context(URI uri, Configuration configuration) throws IOException, URISyntaxException {
            super(new RawContext(configuration));
        }
    }

    private static final class RawContext extends DelegateToFileSystem {
        RawContext(Configuration configuration) throws IOException, URISyntaxException {
            super(FsConstants.LOCAL_FS_URI, new Raw(), configuration, FsConstants.LOCAL_FS_URI.getScheme(), false);
        }

        @Override
        public int getUriDefaultPort() {
            return -1;
        }

        @Override
        public FsServerDefaults getServerDefaults(Path path) throws IOException {
            return LocalConfigKeys.getServerDefaults();
        }

        @Override
        public FsServerDefaults getServerDefaults() throws IOException {
            return LocalConfigKeys.getServerDefaults();
        }

        @Override
        public boolean isValidName(String source) {
            return true; // as Hadoop's own: the operating system decides which names are valid
        }
    }
}
